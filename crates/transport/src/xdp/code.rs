//! Links a program: its entry function, the called functions, and the descriptors of its maps.

use super::elf::{Elf, Relocation, Symbol};
use super::program::XdpError;

/// An instruction: operation, registers, offset, immediate value (RFC 9669, section 3).
type Instruction = [u8; INSTRUCTION_BYTES];
const INSTRUCTION_BYTES: usize = 8;

/// Opcodes.
const LOAD_IMMEDIATE_64: u8 = 0x18;
const CALL: u8 = 0x85;

/// Source registers that give the meaning of an immediate value.
const MAP: u8 = 1;
const MAP_VALUE: u8 = 2;
const LOCAL_CALL: u8 = 1;

/// A function of the object and its position in the program.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Placed {
    section: usize,
    offset: usize,
    count: usize,
    start: usize,
}

/// The instructions of the program that starts with `entry`. `map` returns the descriptor of a map by its name.
pub(super) fn assemble(
    elf: &Elf<'_>,
    entry: &Symbol<'_>,
    map: &dyn Fn(&str) -> Option<u32>,
) -> Result<Vec<Instruction>, XdpError> {
    let mut program = Program {
        elf,
        code: Vec::new(),
        placed: Vec::new(),
    };
    program.place(entry)?;
    let mut done = 0;
    while let Some(function) = program.placed.get(done).copied() {
        done += 1;
        for i in 0..function.count {
            program.resolve(function, i, map)?;
        }
    }
    Ok(program.code)
}

struct Program<'a> {
    elf: &'a Elf<'a>,
    code: Vec<Instruction>,
    placed: Vec<Placed>,
}

impl<'a> Program<'a> {
    /// Appends a function; returns its start.
    fn place(&mut self, function: &Symbol<'_>) -> Result<usize, XdpError> {
        let section = self.elf.sections.get(function.section);
        let code = section.and_then(|s| s.data.get(function.value..)?.get(..function.bytes));
        let code = code.ok_or_else(|| broken(function.name, "is cut short"))?;
        let (instructions, _) = code.as_chunks::<INSTRUCTION_BYTES>();
        let start = self.code.len();
        self.placed.push(Placed {
            section: function.section,
            offset: function.value,
            count: instructions.len(),
            start,
        });
        self.code.extend_from_slice(instructions);
        Ok(start)
    }

    /// Resolves the relocation of instruction `i` of a function.
    fn resolve(
        &mut self,
        function: Placed,
        i: usize,
        map: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<(), XdpError> {
        let offset = function.offset + i * INSTRUCTION_BYTES;
        let at = function.start + i;
        let [operation, registers, ..] = self.code[at];
        match (operation, self.symbol(function.section, offset)) {
            (CALL, symbol) if registers >> 4 == LOCAL_CALL => {
                let start =
                    self.called(function.section, offset, immediate(self.code[at]), symbol)?;
                set_immediate(&mut self.code[at], index(start) - index(at + 1));
                Ok(())
            }
            (LOAD_IMMEDIATE_64, Some(symbol)) => self.load(at, symbol, map),
            (_, Some(symbol)) => Err(broken(symbol.name, "is used in a way that is not known")),
            (_, None) => Ok(()),
        }
    }

    /// The symbol that an instruction depends on.
    fn symbol(&self, section: usize, offset: usize) -> Option<&'a Symbol<'a>> {
        let here = |r: &&Relocation| r.section == section && r.offset == offset;
        let relocation = self.elf.relocations.iter().find(here)?;
        self.elf.symbols.get(relocation.symbol)
    }

    /// The start of the function that an instruction calls; it is appended before the first call.
    fn called(
        &mut self,
        section: usize,
        offset: usize,
        immediate: i32,
        symbol: Option<&Symbol<'_>>,
    ) -> Result<usize, XdpError> {
        // Distances are in instructions, counted from the next one; in a relocation, from the one before the symbol.
        let (section, from) = match symbol {
            Some(symbol) => (symbol.section, symbol.value),
            None => (section, offset),
        };
        let distance = (immediate as isize + 1) * INSTRUCTION_BYTES.cast_signed();
        let target = from.checked_add_signed(distance);
        if let Some(placed) =
            (self.placed.iter()).find(|p| p.section == section && Some(p.offset) == target)
        {
            return Ok(placed.start);
        }
        let mut functions = self.elf.symbols.iter().filter(|s| s.is_function);
        let function = functions.find(|s| s.section == section && Some(s.value) == target);
        match function {
            Some(function) => self.place(function),
            None => Err(broken("a function", "is called that is not there")),
        }
    }

    /// Loads the descriptor of a map, or the address of a variable in one.
    fn load(
        &mut self,
        at: usize,
        symbol: &Symbol<'_>,
        map: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<(), XdpError> {
        let offset = symbol
            .value
            .checked_add_signed(immediate(self.code[at]) as isize);
        let Some(((section, second), offset)) = self
            .elf
            .sections
            .get(symbol.section)
            .zip(self.code.get(at + 1).copied())
            .zip(offset)
        else {
            return Err(broken(symbol.name, "lies nowhere"));
        };
        let mut second: Instruction = second;
        let (name, source) = if section.name == "maps" {
            let mut symbols = self.elf.symbols.iter();
            let found =
                symbols.find(|s| s.section == symbol.section && s.value == offset && s.bytes > 0);
            (found.map(|s| s.name), MAP)
        } else {
            set_immediate(&mut second, index(offset));
            (Some(section.name), MAP_VALUE)
        };
        let number = name.and_then(map);
        let number = number.ok_or_else(|| broken(symbol.name, "is not in a map"))?;
        let first = &mut self.code[at];
        first[1] = first[1] & 0xf | source << 4;
        set_immediate(first, number.cast_signed());
        self.code[at + 1] = second;
        Ok(())
    }
}

/// Converts an index: programs are far shorter than 2^31 instructions, and their variables than 2^31 octets.
fn index(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn broken(name: &str, what: &str) -> XdpError {
    XdpError::Object {
        reason: format!("{name} {what}").into(),
    }
}

fn immediate(instruction: Instruction) -> i32 {
    i32::from_le_bytes([
        instruction[4],
        instruction[5],
        instruction[6],
        instruction[7],
    ])
}

fn set_immediate(instruction: &mut Instruction, value: i32) {
    instruction[4..].copy_from_slice(&value.to_le_bytes());
}

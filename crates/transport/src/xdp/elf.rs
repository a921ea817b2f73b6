//! Reads clang's objects of BPF programs: relocatable ELF files for 64-bit machines, little endian (elf(5), and "BPF
//! Instruction Set Architecture", RFC 9669).

use super::program::XdpError;

/// An object, split into the parts that a loader needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Elf<'a> {
    pub(super) sections: Vec<Section<'a>>,
    pub(super) symbols: Vec<Symbol<'a>>,
    pub(super) relocations: Vec<Relocation>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section<'a> {
    pub(super) name: &'a str,
    /// Empty where the file has no data (`.bss`); see `bytes`.
    pub(super) data: &'a [u8],
    pub(super) bytes: usize,
    /// Whether it contains instructions.
    pub(super) is_code: bool,
    /// Whether it is memory of the running program.
    pub(super) is_memory: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Symbol<'a> {
    pub(super) name: &'a str,
    pub(super) section: usize,
    pub(super) value: usize,
    pub(super) bytes: usize,
    pub(super) is_function: bool,
}

/// A place in the instructions of `section` that depends on a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Relocation {
    pub(super) section: usize,
    pub(super) offset: usize,
    pub(super) symbol: usize,
}

const SECTION_HEADER_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
const RELOCATION_BYTES: usize = 16;

const SYMBOL_TABLE: u32 = 2;
const NO_BITS: u32 = 8;
const RELOCATIONS: u32 = 9;
const ALLOCATED: u64 = 2;
const EXECUTABLE: u64 = 4;
const FUNCTION: u8 = 2;
const MACHINE_BPF: u16 = 247;

struct Header {
    name: usize,
    kind: u32,
    flags: u64,
    offset: usize,
    bytes: usize,
    link: usize,
    info: usize,
}

impl<'a> Elf<'a> {
    /// Reads an object; fails if it is invalid or truncated.
    pub(super) fn read(octets: &'a [u8]) -> Result<Self, XdpError> {
        Self::parse(octets).ok_or(XdpError::Object {
            reason: "it is not a relocatable ELF file of BPF programs".into(),
        })
    }

    fn parse(octets: &'a [u8]) -> Option<Self> {
        if octets.get(..6)? != b"\x7fELF\x02\x01" || half(octets, 18)? != MACHINE_BPF {
            return None;
        }
        let at = size(octets, 40)?;
        let count = usize::from(half(octets, 60)?);
        let names = usize::from(half(octets, 62)?);
        let headers: Vec<Header> = (0..count)
            .map(|i| {
                let start = at.checked_add(i * SECTION_HEADER_BYTES)?;
                Header::read(octets.get(start..)?.get(..SECTION_HEADER_BYTES)?)
            })
            .collect::<Option<_>>()?;
        let names = headers.get(names)?.data(octets)?;
        let mut elf = Self::default();
        for header in &headers {
            let data = header.data(octets)?;
            elf.sections.push(Section {
                name: text(names, header.name)?,
                data,
                bytes: header.bytes,
                is_code: header.flags & EXECUTABLE != 0,
                is_memory: header.flags & ALLOCATED != 0,
            });
            match header.kind {
                SYMBOL_TABLE => {
                    let names = headers.get(header.link)?.data(octets)?;
                    let read = data.chunks_exact(SYMBOL_BYTES).map(|s| symbol(s, names));
                    elf.symbols = read.collect::<Option<_>>()?;
                }
                RELOCATIONS => {
                    for entry in data.chunks_exact(RELOCATION_BYTES) {
                        elf.relocations.push(Relocation {
                            section: header.info,
                            offset: size(entry, 0)?,
                            symbol: word(entry, 12)? as usize,
                        });
                    }
                }
                _ => {}
            }
        }
        Some(elf)
    }

    /// The section of this name.
    pub(super) fn section(&self, name: &str) -> Option<(usize, &Section<'a>)> {
        let mut sections = self.sections.iter().enumerate();
        sections.find(|(_, section)| section.name == name)
    }
}

impl Header {
    fn read(h: &[u8]) -> Option<Self> {
        Some(Self {
            name: word(h, 0)? as usize,
            kind: word(h, 4)?,
            flags: size(h, 8)? as u64,
            offset: size(h, 24)?,
            bytes: size(h, 32)?,
            link: word(h, 40)? as usize,
            info: word(h, 44)? as usize,
        })
    }

    fn data<'a>(&self, octets: &'a [u8]) -> Option<&'a [u8]> {
        match self.kind {
            0 | NO_BITS => Some(&[]),
            _ => octets.get(self.offset..)?.get(..self.bytes),
        }
    }
}

fn symbol<'a>(s: &[u8], names: &'a [u8]) -> Option<Symbol<'a>> {
    Some(Symbol {
        name: text(names, word(s, 0)? as usize)?,
        section: usize::from(half(s, 6)?),
        value: size(s, 8)?,
        bytes: size(s, 16)?,
        is_function: s.get(4)? & 0xf == FUNCTION,
    })
}

fn text(names: &[u8], at: usize) -> Option<&str> {
    let rest = names.get(at..)?;
    let end = rest.iter().position(|octet| *octet == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

fn half(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(
        octets.get(at..)?.get(..2)?.try_into().ok()?,
    ))
}

fn word(octets: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        octets.get(at..)?.get(..4)?.try_into().ok()?,
    ))
}

fn size(octets: &[u8], at: usize) -> Option<usize> {
    let value = u64::from_le_bytes(octets.get(at..)?.get(..8)?.try_into().ok()?);
    usize::try_from(value).ok()
}

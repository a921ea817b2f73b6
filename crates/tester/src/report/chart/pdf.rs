//! Drawings as PDF (ISO 32000-1): a page of the size of the drawing, with the words in Helvetica, which every viewer has.
//! What a page needs is so little that a crate would not make this shorter.

use std::fmt::Write as _;

use super::shapes::{Anchor, Role, Shape, Shapes, Stroke};
use super::{COLOURS, Size};

/// The file of a drawing of this size in its own units, and in millimetres. It is ASCII.
pub(super) fn file((width, _): Size, (width_mm, height_mm): Size, shapes: &Shapes) -> String {
    let [width_pt, height_pt] = [width_mm, height_mm].map(|mm| mm * 72.0 / 25.4);
    // Down is up in PDF.
    let scale = width_pt / width;
    let content = format!(
        "{scale:.5} 0 0 -{scale:.5} 0 {height_pt:.2} cm 1 J 1 j\n{}",
        drawn(shapes)
    );
    let objects = [
        "<</Type/Catalog/Pages 2 0 R>>".to_owned(),
        "<</Type/Pages/Kids[3 0 R]/Count 1>>".to_owned(),
        format!(
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 {width_pt:.2} {height_pt:.2}]/Contents 4 0 R\
             /Resources<</Font<</F 5 0 R>>>>>>"
        ),
        format!("<</Length {}>>\nstream\n{content}endstream", content.len()),
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>".to_owned(),
    ];
    let mut file = "%PDF-1.4\n".to_owned();
    let mut table = "xref\n0 6\n0000000000 65535 f \n".to_owned();
    for (object, number) in objects.iter().zip(1..) {
        let _ = writeln!(table, "{:010} 00000 n ", file.len());
        let _ = write!(file, "{number} 0 obj\n{object}\nendobj\n");
    }
    let at = file.len();
    file + &table + &format!("trailer\n<</Size 6/Root 1 0 R>>\nstartxref\n{at}\n%%EOF\n")
}

/// The operators of these elements.
fn drawn(shapes: &Shapes) -> String {
    shapes.0.iter().map(operators).collect()
}

fn operators(shape: &Shape) -> String {
    match shape {
        Shape::Path(role, stroke, data) => {
            let path = traced(data);
            let filled = |pct| format!("{} rg\n{path}f\n", colour(*role, pct));
            let drawn = |width, dashes: &str| {
                let colour = colour(*role, 100);
                format!("{colour} RG {width} w [{dashes}] 0 d\n{path}S\n")
            };
            match stroke {
                Stroke::Fill => filled(100),
                Stroke::Shade(pct) => filled(*pct),
                Stroke::Solid(width) => drawn(*width, ""),
                Stroke::Dashed => drawn(2, "10 10"),
            }
        }
        Shape::Word(role, anchor, (x, y), baseline, word) => {
            let (colour, octets) = (colour(*role, 100), win_ansi(word));
            let left = match anchor {
                Anchor::Start => 0.0,
                Anchor::Middle => width(&octets) / 2.0,
                Anchor::End => width(&octets),
            };
            let (x, y) = (x - left, y + baseline.1 * FONT_SIZE);
            let word = literal(&octets);
            format!("BT {colour} rg /F {FONT_SIZE} Tf 1 0 0 -1 {x:.1} {y:.1} Tm ({word}) Tj ET\n")
        }
        Shape::Group((x, y), shapes) => {
            format!("q 1 0 0 1 {x:.1} {y:.1} cm\n{}Q\n", drawn(shapes))
        }
    }
}

/// Operands of a colour on white paper.
fn colour(Role(class): Role, opacity_pct: u8) -> String {
    let known = COLOURS.iter().find(|(role, _)| *role == class);
    let hex = known.map_or("#000000", |(_, hex)| hex);
    let opacity = f64::from(opacity_pct) / 100.0;
    let part = |at: usize| {
        let part = u8::from_str_radix(&hex[at..at + 2], 16).unwrap_or(0);
        format!("{:.3}", 1.0 - opacity * (1.0 - f64::from(part) / 255.0))
    };
    [1, 3, 5].map(part).join(" ")
}

/// The operators of path data. Half of a circle is one Bézier curve, which departs from it by 2 % of the radius.
fn traced(data: &str) -> String {
    let (mut out, mut x, mut y) = (String::new(), 0.0, 0.0);
    let commands = data.chars().filter(char::is_ascii_alphabetic);
    let numbers = data.split(|c: char| c.is_ascii_alphabetic()).skip(1);
    for (command, numbers) in commands.zip(numbers) {
        let numbers = numbers.replace('-', " -");
        let numbers = numbers.split_whitespace().map(str::parse);
        let numbers: Vec<f64> = numbers.filter_map(Result::ok).collect();
        let (each, operator) = match command {
            'M' => (2, "m"),
            'L' | 'l' => (2, "l"),
            'a' => (7, "c"),
            _ => (1, "l"),
        };
        for step in numbers.chunks(each) {
            match (command, step) {
                ('M' | 'L', &[to_x, to_y]) => (x, y) = (to_x, to_y),
                ('l', &[right, down]) => (x, y) = (x + right, y + down),
                ('H', &[to]) => x = to,
                ('h', &[right]) => x += right,
                ('v', &[down]) => y += down,
                ('a', &[.., right, _]) => {
                    let (end, bulge) = (x + right, y + right * 2.0 / 3.0);
                    let _ = write!(out, "{x:.1} {bulge:.1} {end:.1} {bulge:.1} ");
                    x = end;
                }
                _ => {}
            }
            let _ = writeln!(out, "{x:.1} {y:.1} {operator}");
        }
        if command == 'z' {
            out += "h\n";
        }
    }
    out
}

/// Height of a letter.
const FONT_SIZE: f64 = 24.0;

/// Width of these octets.
fn width(octets: &[u8]) -> f64 {
    let width = |octet: &u8| WIDTHS.get(usize::from(*octet) - 32).unwrap_or(&556);
    let thousandths: f64 = octets.iter().map(width).copied().map(f64::from).sum();
    FONT_SIZE * thousandths / 1000.0
}

/// Widths of the ASCII characters from the space on, in thousandths of the height (Adobe, "Core 14 AFM files"). The digits,
/// dashes and daggers have 556.
const WIDTHS: [u16; 95] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556,
    556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667,
    611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667,
    667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500,
    222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
];

/// A text in WinAnsi: ≥ becomes >=, a minus a dash, and another character that is not in it a question mark.
fn win_ansi(text: &str) -> Vec<u8> {
    // From 128 on; spaces are not used.
    const OTHERS: &str = "€ ‚ƒ„…†‡ˆ‰Š‹Œ Ž  ‘’“”•–—˜™š›œ žŸ";
    let octet = |c: char| {
        let latin = u8::try_from(c).ok().filter(|_| !c.is_control());
        let other = || (128..).zip(OTHERS.chars()).find(|(_, other)| *other == c);
        latin.or_else(|| Some(other()?.0)).unwrap_or(b'?')
    };
    let text = text.replace('≥', ">=").replace('−', "–");
    text.chars().map(octet).collect()
}

/// The content of a string of these octets.
fn literal(octets: &[u8]) -> String {
    let escaped = |octet: &u8| match octet {
        b'(' | b')' | b'\\' | 127.. => format!("\\{octet:03o}"),
        octet => char::from(*octet).to_string(),
    };
    octets.iter().map(escaped).collect()
}

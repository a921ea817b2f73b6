//! From the SVG that plotters writes to that of the page: colours become classes, so that light and
//! dark share one figure, and runs of equal lines become one path, so that many searches stay small.

use std::fmt::Write as _;

use plotters::style::RGBColor;

/// What something in a figure stands for; the page's style gives each its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Names and numbers.
    Ink,
    /// What helps to read, such as axes and ideal lines.
    Muted,
    /// The mesh.
    Grid,
    /// A trial that passed.
    Passed,
    /// One that failed.
    Failed,
    /// One that says nothing.
    Invalid,
    /// A variant, by its place.
    Series(usize),
}

/// How many colours there are for series; the next one begins again with another mark.
pub(super) const COLOURS: usize = 6;

impl Role {
    /// A colour that stands for it until [`themed`] makes a class of it.
    pub(super) fn colour(self) -> RGBColor {
        RGBColor(0, 0, self.number())
    }

    fn number(self) -> u8 {
        match self {
            Self::Ink => 0,
            Self::Muted => 1,
            Self::Grid => 2,
            Self::Passed => 3,
            Self::Failed => 4,
            Self::Invalid => 5,
            Self::Series(place) => u8::try_from(6 + place % COLOURS).unwrap_or(6),
        }
    }
}

/// Name of the class for a colour of [`Role::colour`]: nothing for "none".
fn class(colour: &str) -> Option<&'static str> {
    const NAMES: [&str; 6 + COLOURS] = [
        "ink", "muted", "grid", "passed", "failed", "invalid", "s1", "s2", "s3", "s4", "s5", "s6",
    ];
    let number = usize::from_str_radix(colour.strip_prefix("#0000")?, 16).ok()?;
    NAMES.get(number).copied()
}

/// An element of SVG as plotters writes it.
struct Element<'a> {
    name: &'a str,
    attributes: Vec<(&'a str, &'a str)>,
}

impl<'a> Element<'a> {
    /// Of the text between `<` and `>`. Values hold no quotation marks: plotters escapes them.
    fn of(tag: &'a str) -> Self {
        let tag = tag.trim_end_matches('/');
        let (name, rest) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut attributes = Vec::new();
        let mut parts = rest.split('"');
        while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
            attributes.push((key.trim().trim_end_matches('='), value));
        }
        Self { name, attributes }
    }

    fn get(&self, key: &str) -> &'a str {
        self.attributes
            .iter()
            .find(|(name, _)| *name == key)
            .map_or("", |(_, value)| value)
    }

    /// Its place in the style: class of the colour, filled or drawn, width, opacity.
    fn look(&self) -> String {
        let (class, way) = match class(self.get("fill")) {
            Some(name) => (name, "fill"),
            None => (class(self.get("stroke")).unwrap_or("ink"), "line"),
        };
        let mut look = format!(" class=\"{way} {class}\"");
        let width = self.get("stroke-width");
        if way == "line" && !["", "1", "2"].contains(&width) {
            let _ = write!(look, " style=\"stroke-width:{width}\"");
        }
        if !["", "1"].contains(&self.get("opacity")) {
            let _ = write!(look, " opacity=\"{}\"", self.get("opacity"));
        }
        look
    }

    /// As data of a path, if it is made of straight lines.
    fn path(&self) -> Option<String> {
        let get = |key| self.get(key);
        match self.name {
            "line" => Some(format!(
                "M{} {}L{} {}",
                get("x1"),
                get("y1"),
                get("x2"),
                get("y2")
            )),
            "rect" => Some(format!(
                "M{} {}h{}v{}h-{}z",
                get("x"),
                get("y"),
                get("width"),
                get("height"),
                get("width")
            )),
            "polyline" | "polygon" => {
                let mut points: Vec<String> = get("points")
                    .split_whitespace()
                    .map(|point| point.replace(',', " "))
                    .collect();
                points.dedup();
                let close = if self.name == "polygon" { "z" } else { "" };
                // A line without length is a dot, by its round ends.
                let dot = if points.len() == 1 { "h0" } else { "" };
                Some(format!("M{}{dot}{close}", points.join("L")))
            }
            _ => None,
        }
    }
}

/// A figure of plotters for the page: `title` is what a screen reader says, who passes over one without.
pub(super) fn themed(svg: &str, title: &str) -> String {
    let mut page = String::with_capacity(svg.len() / 2);
    // A path that the next element may join: its look and its data.
    let mut open: Option<(String, String)> = None;
    let mut rest = svg;
    while let Some((before, after)) = rest.split_once('<') {
        if !before.trim().is_empty() {
            page.push_str(before.trim());
        }
        let Some((tag, after)) = after.split_once('>') else {
            break;
        };
        rest = after;
        let element = Element::of(tag);
        if let Some(data) = element.path() {
            let look = element.look();
            match &mut open {
                Some((of, path)) if *of == look => path.push_str(&data),
                _ => {
                    close_path(&mut page, open.replace((look, data)));
                }
            }
            continue;
        }
        close_path(&mut page, open.take());
        write_other(&mut page, tag, &element, title);
    }
    page
}

fn close_path(page: &mut String, open: Option<(String, String)>) {
    if let Some((look, data)) = open {
        let _ = write!(page, "<path{look} d=\"{data}\"/>");
    }
}

fn write_other(page: &mut String, tag: &str, element: &Element<'_>, title: &str) {
    let get = |key| element.get(key);
    let _ = match element.name {
        "svg" if title.is_empty() => write!(
            page,
            "<svg viewBox=\"{}\" aria-hidden=\"true\">",
            get("viewBox")
        ),
        "svg" => write!(
            page,
            "<svg viewBox=\"{}\" role=\"img\" aria-label=\"{}\">",
            get("viewBox"),
            escaped(title)
        ),
        "circle" => write!(
            page,
            "<circle{} cx=\"{}\" cy=\"{}\" r=\"{}\"/>",
            element.look(),
            get("cx"),
            get("cy"),
            get("r")
        ),
        "text" => write!(
            page,
            "<text class=\"{} {}\" x=\"{}\" y=\"{}\" dy=\"{}\">",
            get("text-anchor"),
            class(get("fill")).unwrap_or("ink"),
            get("x"),
            get("y"),
            get("dy")
        ),
        _ => write!(page, "<{tag}>"),
    };
}

/// Text that can stand in an attribute or between tags.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_become_classes_and_equal_lines_one_path() {
        let drawn = "<svg width=\"9\" height=\"9\" viewBox=\"0 0 9 9\" xmlns=\"x\">\n\
            <line opacity=\"1\" stroke=\"#000002\" stroke-width=\"2\" x1=\"1\" y1=\"2\" x2=\"3\" y2=\"4\"/>\n\
            <polyline fill=\"none\" opacity=\"1\" stroke=\"#000002\" stroke-width=\"2\" points=\"5,5 5,5 \"/>\n\
            <rect x=\"0\" y=\"1\" width=\"2\" height=\"3\" opacity=\"0.5\" fill=\"#000006\" stroke=\"none\"/>\n\
            <text x=\"1\" y=\"2\" dy=\"0.5ex\" text-anchor=\"end\" fill=\"#000000\">\na &lt; b\n</text>\n\
            </svg>";
        assert_eq!(
            themed(drawn, "a \"b\""),
            "<svg viewBox=\"0 0 9 9\" role=\"img\" aria-label=\"a &quot;b&quot;\">\
             <path class=\"line grid\" d=\"M1 2L3 4M5 5h0\"/>\
             <path class=\"fill s1\" opacity=\"0.5\" d=\"M0 1h2v3h-2z\"/>\
             <text class=\"end ink\" x=\"1\" y=\"2\" dy=\"0.5ex\">a &lt; b</text></svg>"
        );
    }

    #[test]
    fn a_series_beyond_the_last_colour_begins_again() {
        assert_eq!(Role::Series(0).colour(), Role::Series(COLOURS).colour());
        assert_eq!(class("#00000B"), Some("s6"));
        assert_eq!(class("none"), None);
    }
}

//! Tables as comma-separated values (RFC 4180, with line feeds). Unknown values are empty.

use std::io;

use super::table::{Cell, Table};

/// A table as comma-separated values.
///
/// # Errors
///
/// Those of the writer.
pub(super) fn text(table: &Table) -> io::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(table.columns.iter().map(|column| &column.key))?;
    for row in &table.rows {
        writer.write_record(row.iter().map(Cell::raw))?;
    }
    let octets = writer
        .into_inner()
        .map_err(csv::IntoInnerError::into_error)?;
    String::from_utf8(octets).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::campaign::table::{Column, columns, rate};

    #[test]
    fn values_with_commas_quotes_and_line_feeds_are_quoted() {
        let columns: [Column<&str>; 4] = columns![text: &str;
            "text", "" => *text;
            "nothing", "" => text.strip_prefix("nothing");
            "rate_qps", "" => rate(text.len() as f64 / 2.0);
            "several", "" => Cell::list([(*text).to_owned(), "x".to_owned()]);
        ];
        let texts = ["plain", "a, b", "say \"so\"", "two\nlines", ""];
        let table = Table::new("", "", "").with(&columns, texts);
        assert_eq!(
            text(&table).unwrap(),
            "text,nothing,rate_qps,several\nplain,,2.5,plain; x\n\"a, b\",,2,\"a, b; x\"\n\
             \"say \"\"so\"\"\",,4,\"say \"\"so\"\"; x\"\n\"two\nlines\",,4.5,\"two\nlines; x\"\n\
             ,,0,; x\n"
        );
    }
}

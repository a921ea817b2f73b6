//! Tables as comma-separated values (RFC 4180, with line feeds). Unknown values are empty.

use std::io;

use super::table::{Cell, Exporter, Table};

/// Comma-separated values.
pub(super) struct Csv;

impl Exporter for Csv {
    fn export(&self, tables: &[Table]) -> io::Result<String> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for table in tables {
            writer.write_record(table.columns.iter().map(|column| &column.key))?;
            for row in &table.rows {
                writer.write_record(row.iter().map(Cell::raw))?;
            }
        }
        let octets = writer
            .into_inner()
            .map_err(csv::IntoInnerError::into_error)?;
        String::from_utf8(octets).map_err(io::Error::other)
    }
}

//! The columns of the CSV as Parquet, with the lateness and the class of each query, and the authority's records of its
//! name.
//!
//! A row group is written as soon as its rows have been read, so at most [`GROUP_ROWS`] rows are in memory.

use std::io::{self, Write};
use std::sync::Arc;

use dns64_transport::clock::Nanos;
use parquet::basic::Encoding;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::Header;
use crate::authority::ledger::{Question, Questions};
use crate::load::ledger::Fate;
use crate::namespace;
use crate::trial::rows::{Row, Rows};

/// Rows in a row group: some 10 MB in memory, and enough to make the statistics of a group negligible.
const GROUP_ROWS: usize = 1 << 17;

/// Names and types of the columns; each name ends in its unit, since Parquet has no field for it.
const SCHEMA: &str = "message dns64perf {
    REQUIRED BYTE_ARRAY query (UTF8);
    REQUIRED INT32 thread_id;
    REQUIRED INT64 tsent_ns;
    REQUIRED INT64 treceived_ns;
    REQUIRED BOOLEAN received;
    REQUIRED BOOLEAN answered;
    REQUIRED INT64 rtt_ns;
    REQUIRED INT64 lateness_ns;
    REQUIRED BYTE_ARRAY class (UTF8);
    REQUIRED INT32 aaaa_questions;
    REQUIRED INT64 aaaa_arrived_ns;
    REQUIRED INT64 aaaa_answered_ns;
    REQUIRED INT32 a_questions;
    REQUIRED INT64 a_arrived_ns;
    REQUIRED INT64 a_answered_ns;
}";

/// Writes all rows and returns their number.
///
/// # Errors
///
/// Those of the writer.
pub fn write(out: impl Write + Send, mut rows: Rows<'_>, header: &Header) -> io::Result<u64> {
    let schema = Arc::new(parse_message_type(SCHEMA).map_err(io::Error::other)?);
    let properties = Arc::new(properties(header));
    let suffix = super::suffix(&rows);
    let started_at_ns = rows.started_at_ns();
    let all = rows.clone();
    let mut writer = SerializedFileWriter::new(out, schema, properties).map_err(io_error)?;
    let mut group = Vec::with_capacity(GROUP_ROWS);
    let mut count = 0;
    loop {
        group.clear();
        group.extend(rows.by_ref().take(GROUP_ROWS));
        if group.is_empty() {
            break;
        }
        count += group.len() as u64;
        let columns = Columns {
            all: &all,
            rows: &group,
            suffix: suffix.as_bytes(),
            started_at_ns,
        };
        let mut written = writer.next_row_group().map_err(io_error)?;
        columns.write(&mut written).map_err(io_error)?;
        written.close().map_err(io_error)?;
    }
    writer.close().map_err(io_error)?;
    Ok(count)
}

/// Encodings: times increase in small steps and names share prefixes, so differences are stored; flags and classes have
/// few values, which a dictionary stores.
fn properties(header: &Header) -> WriterProperties {
    let key = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_created_by(crate::PROGRAM.to_owned())
        .set_key_value_metadata(Some(vec![
            key("server", header.server.to_string()),
            key("port", header.port.to_string()),
            key("number of requests", header.requests.to_string()),
            key("burst size", header.burst.to_string()),
            key("number of threads", header.threads.to_string()),
            key("delay between bursts [ns]", header.delay_ns.to_string()),
        ]));
    for (column, encoding) in [
        ("query", Encoding::DELTA_BYTE_ARRAY),
        ("tsent_ns", Encoding::DELTA_BINARY_PACKED),
        ("treceived_ns", Encoding::DELTA_BINARY_PACKED),
        ("rtt_ns", Encoding::DELTA_BINARY_PACKED),
        ("lateness_ns", Encoding::DELTA_BINARY_PACKED),
    ] {
        let column = ColumnPath::from(column);
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, encoding);
    }
    properties.build()
}

/// The rows of a group, column by column.
struct Columns<'a> {
    /// The trial of the rows.
    all: &'a Rows<'a>,
    rows: &'a [Row],
    suffix: &'a [u8],
    started_at_ns: Nanos,
}

type Result<T> = std::result::Result<T, parquet::errors::ParquetError>;

impl Columns<'_> {
    fn write<W: Write + Send>(&self, group: &mut SerializedRowGroupWriter<'_, W>) -> Result<()> {
        let start = self.started_at_ns;
        let rtt = |row: &Row| row.rtt_ns.cast_signed();
        self.column::<ByteArrayType, _>(group, |row| {
            let label = namespace::label(row.address);
            ByteArray::from([&label[..], self.suffix].concat())
        })?;
        self.column::<Int32Type, _>(group, |row| i32::try_from(row.shard).unwrap_or(i32::MAX))?;
        self.column::<Int64Type, _>(group, |row| (start + row.sent_ns).cast_signed())?;
        self.column::<Int64Type, _>(group, |row| match row.received() {
            true => (start + row.sent_ns + row.rtt_ns).cast_signed(),
            false => 0,
        })?;
        self.column::<BoolType, _>(group, Row::received)?;
        self.column::<BoolType, _>(group, |row| row.fate == Fate::Valid)?;
        self.column::<Int64Type, _>(group, |row| if row.received() { rtt(row) } else { -1 })?;
        self.column::<Int64Type, _>(group, |row| i64::from(row.lateness_ns))?;
        self.column::<ByteArrayType, _>(group, |row| ByteArray::from(row.class()))?;
        for of in [|q: &Questions| q.aaaa, |q: &Questions| q.a] {
            let question = |row: &Row| self.question(row, of);
            self.column::<Int32Type, _>(group, |row| i32::from(question(row).0.asked))?;
            self.column::<Int64Type, _>(group, |row| {
                let (question, real) = question(row);
                question.arrived_at.map_or(0, real)
            })?;
            self.column::<Int64Type, _>(group, |row| {
                let (question, real) = question(row);
                question.answered_at().map_or(0, real)
            })?;
        }
        Ok(())
    }

    /// Times of the queries of one type for the name of a row, empty if unknown, and their conversion to real time.
    fn question(
        &self,
        row: &Row,
        of: fn(&Questions) -> Question,
    ) -> (Question, impl Fn(Nanos) -> i64) {
        let timeline = self.all.timeline(row.index);
        let questions = timeline.and_then(|timeline| timeline.questions);
        let sent_at = timeline
            .map_or(0, |timeline| timeline.sent_at)
            .cast_signed();
        let sent_real = (self.started_at_ns + row.sent_ns).cast_signed();
        let real = move |at: Nanos| sent_real + (at.cast_signed() - sent_at);
        (questions.map_or(Question::default(), |q| of(&q)), real)
    }

    /// Writes the next column of the group.
    fn column<T: DataType, W: Write + Send>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        value: impl Fn(&Row) -> T::T,
    ) -> Result<()> {
        let values: Vec<T::T> = self.rows.iter().map(value).collect();
        if let Some(mut column) = group.next_column()? {
            column.typed::<T>().write_batch(&values, None, None)?;
            column.close()?;
        }
        Ok(())
    }
}

/// The error of the system, if it caused this error.
fn io_error(error: parquet::errors::ParquetError) -> io::Error {
    match error {
        parquet::errors::ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(io) => *io,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

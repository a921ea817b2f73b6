//! The log and its destinations: standard error, the journal or the system log.
//!
//! A separate thread writes lines to standard error, so that a stopped terminal, a full disk or an
//! unread pipe never blocks a worker. A line is lost if the queue is full.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::Duration;

use syslog_tracing::{Facility, InvalidCharAction, Options, Syslog};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use crate::settings::{LogLevel, LogSettings, LogTarget};

/// Capacity of the queue in lines; at 200 octets each, half a megabyte.
const LINES_MAX: usize = 2500;

/// Time to write the last lines when the server ends.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Reason why the log cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The journal is not available.
    #[error("cannot log to journald: {0}; choose the target stderr or syslog")]
    Journald(io::Error),
    /// The log was started before.
    #[error("the log was started twice: {0}")]
    Twice(#[from] TryInitError),
    /// The system log is not available.
    #[error("the system log is in use already; choose the target stderr or journald")]
    Syslog,
    /// The thread cannot be started.
    #[error("cannot start the thread of the log: {0}")]
    Thread(io::Error),
}

/// The log. Dropping it waits briefly until the last lines are written.
#[derive(Debug, Default)]
#[must_use = "the last lines leave when it is dropped"]
pub struct LogGuard {
    /// Queue to the writing thread, if one is needed.
    lines: Option<SyncSender<Line>>,
    /// The other end of the queue until the thread starts.
    unwritten: Option<Receiver<Line>>,
    /// The lowest level that is logged.
    pub level: Lowest,
}

/// The lowest level that is logged.
#[derive(Clone, Debug, Default)]
pub struct Lowest(Option<Handle<LevelFilter, Registry>>);

impl Lowest {
    /// Changes it.
    pub fn set(&self, new: LogLevel) {
        if let Some(handle) = &self.0 {
            // Fails only without a log.
            let _ = handle.reload(level(new));
        }
    }
}

impl LogGuard {
    /// Starts the thread that writes lines to standard error; until then they wait. A thread keeps
    /// the privileges with which it was started, so this must be called after they were dropped.
    ///
    /// # Errors
    ///
    /// The system refuses to start the thread.
    pub fn begin(&mut self) -> Result<(), LogError> {
        let Some(lines) = self.unwritten.take() else {
            return Ok(());
        };
        let thread = Builder::new().name("log".into());
        let begun = thread.spawn(move || write_lines(&lines, || io::stderr().lock()));
        begun.map(drop).map_err(LogError::Thread)
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        // Without a thread, nothing reads the queue.
        let begun = self.begin();
        if let Some(lines) = self.lines.as_ref().filter(|_| begun.is_ok()) {
            let (done, last) = sync_channel(1);
            if lines.try_send(Line::Last(done)).is_ok() {
                // Lines that are not written in time are lost.
                let _ = last.recv_timeout(LAST_LINES);
            }
        }
    }
}

/// Sends all log messages from now on to the destination of the settings.
///
/// # Errors
///
/// The destination does not exist, or the log was started before.
pub fn start(settings: &LogSettings) -> Result<LogGuard, LogError> {
    let mut guard = LogGuard::default();
    let layer: Box<dyn Layer<Registry> + Send + Sync> = match settings.target {
        LogTarget::Stderr => {
            let (lines, receiver) = sync_channel(LINES_MAX);
            guard = LogGuard {
                lines: Some(lines.clone()),
                unwritten: Some(receiver),
                level: Lowest::default(),
            };
            // The journal adds the time itself (systemd.exec(5), JOURNAL_STREAM).
            let timed = std::env::var_os("JOURNAL_STREAM").is_none();
            stderr_layer(Lines(lines), timed)
        }
        LogTarget::Journald => tracing_journald::layer()
            .map_err(LogError::Journald)?
            .boxed(),
        LogTarget::Syslog => {
            let syslog = Syslog::new(c"dns64d", Options::LOG_PID, Facility::Daemon);
            let syslog = syslog.ok_or(LogError::Syslog)?;
            tracing_subscriber::fmt::layer()
                .with_writer(syslog.invalid_chars(InvalidCharAction::Remove))
                .with_ansi(false)
                .with_level(false)
                .with_target(false)
                .without_time()
                .log_internal_errors(false)
                .boxed()
        }
    };
    let (filter, handle) = reload::Layer::new(level(settings.level));
    guard.level = Lowest(Some(handle));
    let filtered = layer.with_filter(filter);
    tracing_subscriber::registry().with(filtered).try_init()?;
    Ok(guard)
}

fn stderr_layer(lines: Lines, timed: bool) -> Box<dyn Layer<Registry> + Send + Sync> {
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(lines)
        .with_ansi(false)
        .with_target(false)
        // Its error messages go to standard error, and end the process if that is closed.
        .log_internal_errors(false);
    if timed {
        layer.boxed()
    } else {
        layer.without_time().boxed()
    }
}

fn level(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    }
}

/// A message to the writing thread.
#[derive(Debug)]
enum Line {
    /// A line to write.
    Text(Vec<u8>),
    /// A request to confirm that all earlier lines are written.
    Last(SyncSender<()>),
}

fn write_lines<W: Write>(lines: &Receiver<Line>, open: impl Fn() -> W) {
    for line in lines {
        match line {
            // A full disk or a closed pipe only loses lines.
            Line::Text(text) => drop(open().write_all(&text)),
            Line::Last(done) => drop(done.try_send(())),
        }
    }
}

/// Gives each event a buffer, which is queued as a line on drop.
#[derive(Clone, Debug)]
struct Lines(SyncSender<Line>);

#[derive(Debug)]
struct Buffer<'a> {
    lines: &'a SyncSender<Line>,
    text: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Buffer<'a>;

    fn make_writer(&'a self) -> Buffer<'a> {
        Buffer {
            lines: &self.0,
            text: Vec::new(),
        }
    }
}

impl Write for Buffer<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // If the queue is full, the line is lost.
        let _ = self
            .lines
            .try_send(Line::Text(std::mem::take(&mut self.text)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::TryRecvError;

    use tracing::subscriber::with_default;

    use super::*;

    /// The lines in the queue after an event with `layer`.
    fn logged(timed: bool, log: impl FnOnce()) -> Vec<String> {
        let (sender, receiver) = sync_channel(2);
        let layer = stderr_layer(Lines(sender), timed).with_filter(level(LogLevel::Info));
        with_default(tracing_subscriber::registry().with(layer), log);
        let texts = receiver.into_iter().map(|line| match line {
            Line::Text(text) => String::from_utf8(text).unwrap(),
            Line::Last(_) => unreachable!("nobody waits"),
        });
        texts.collect()
    }

    #[test]
    fn lines_have_a_level_and_no_time_for_the_journal() {
        let lines = logged(false, || {
            tracing::warn!("disk of {} is full", "x");
            tracing::debug!("not this");
        });
        assert_eq!(lines, [" WARN disk of x is full\n"]);
        let lines = logged(true, || tracing::info!("hello"));
        assert!(lines[0].ends_with("Z  INFO hello\n"), "{lines:?}");
    }

    #[test]
    fn full_queue_loses_lines_and_does_not_block() {
        let lines = logged(false, || {
            for number in 0..5 {
                tracing::info!("{number}");
            }
        });
        assert_eq!(lines, [" INFO 0\n", " INFO 1\n"]);
    }

    #[test]
    fn lines_that_cannot_be_written_are_lost() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (sender, receiver) = sync_channel(2);
        let (done, last) = sync_channel(1);
        sender.send(Line::Text(b"lost".to_vec())).unwrap();
        sender.send(Line::Last(done)).unwrap();
        drop(sender);
        write_lines(&receiver, || Full);
        assert_eq!(last.try_recv(), Ok(()));
        assert_eq!(last.try_recv(), Err(TryRecvError::Disconnected));
    }
}

//! Writes events as JSON lines to the worker's standard output.
//!
//! One thread owns the output and writes line after line: lines of several lanes never mix, a
//! delivery that is dropped half-way tears no line, and a consumer that stops reading blocks that
//! thread and no task. Each line is written through at once, so that `| jq` sees it.
//!
//! Accepted means written to the pipe or file; what the reader makes of it is not known here.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, Delivery, Verdict};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::{SettingsError, envelope, settings};

const KIND: &str = "stdout";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
pub(crate) const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);
/// Lines waiting for the writer; past it, deliveries wait for room.
const WAITING_LINES: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    timeout_ms: Option<u64>,
}

/// Writes one line per event.
pub struct Stdout {
    lines: LineWriter,
    timeout: Duration,
}

impl Stdout {
    pub(super) fn check(settings: &Value) -> Result<(), SettingsError> {
        read(settings).map(drop)
    }

    pub(super) fn build(subscription: &str, settings: &Value) -> Result<Self, SettingsError> {
        let timeout = read(settings)?;
        let lines = LineWriter::of_process().map_err(|source| SettingsError::Output {
            subscription: subscription.to_owned(),
            source,
        })?;
        Ok(Self { lines, timeout })
    }

    /// Writes to `lines` instead of the process's own output.
    pub fn to(lines: LineWriter, timeout: Duration) -> Self {
        Self { lines, timeout }
    }
}

fn read(given: &Value) -> Result<Duration, SettingsError> {
    let given: Settings = settings::parse(KIND, given)?;
    settings::timeout(KIND, given.timeout_ms, DEFAULT_TIMEOUT, LONGEST_TIMEOUT)
}

#[async_trait]
impl Adapter for Stdout {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        let mut line = envelope::shared_body(delivery);
        // Between the tokens of a JSON text a line break is white space; inside a string it cannot
        // stand unescaped.
        for byte in &mut line {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        line.push(b'\n');
        match timeout(self.timeout, self.lines.write(line)).await {
            Ok(Ok(())) => Verdict::Accepted,
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Verdict::retry(
                "nothing reads the standard output any more (broken pipe); \
                 restart the worker with a reader, or change the subscription's adapter",
            ),
            Ok(Err(error)) => {
                Verdict::retry(format!("the standard output cannot be written: {error}"))
            }
            Err(_) => Verdict::retry(format!(
                "the standard output took no line for {:?}: its reader is not reading",
                self.timeout
            )),
        }
    }
}

/// A handle on the thread that owns an output. The thread ends when the last handle is gone.
#[derive(Clone)]
pub struct LineWriter {
    lines: mpsc::Sender<Line>,
}

struct Line {
    text: Vec<u8>,
    written: oneshot::Sender<io::Result<()>>,
}

impl LineWriter {
    /// Starts a thread that owns `output`.
    pub fn start(output: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, waiting) = mpsc::channel(WAITING_LINES);
        thread::Builder::new()
            .name("stdout-lines".to_owned())
            .spawn(move || write_lines(output, waiting))?;
        Ok(Self { lines })
    }

    /// The one writer of this process's standard output.
    fn of_process() -> io::Result<Self> {
        static OF_PROCESS: OnceLock<LineWriter> = OnceLock::new();
        if let Some(lines) = OF_PROCESS.get() {
            return Ok(lines.clone());
        }
        // Not `io::stdout()`: after a failed write its buffer would keep, and later repeat, what
        // the delivery was told had failed.
        let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let started = Self::start(output)?;
        Ok(OF_PROCESS.get_or_init(|| started).clone())
    }

    /// `text` ends in a line break. If the future is dropped before the line's turn has come, the
    /// line is not written.
    async fn write(&self, text: Vec<u8>) -> io::Result<()> {
        let ended = || io::Error::other("its writer has ended");
        let (written, outcome) = oneshot::channel();
        self.lines
            .send(Line { text, written })
            .await
            .map_err(|_| ended())?;
        outcome.await.map_err(|_| ended())?
    }
}

fn write_lines(mut output: impl Write, mut waiting: mpsc::Receiver<Line>) {
    let mut torn = false;
    while let Some(line) = waiting.blocking_recv() {
        if line.written.is_closed() {
            continue;
        }
        // A failed write may have left part of a line (a full disk): the next one starts afresh.
        let result = if torn {
            output.write_all(b"\n")
        } else {
            Ok(())
        }
        .and_then(|()| output.write_all(&line.text))
        .and_then(|()| output.flush());
        torn = result.is_err();
        // Nobody to tell: the delivery was dropped while its line was written.
        let _ = line.written.send(result);
    }
}

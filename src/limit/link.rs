//! A connection to Redis, and the questions that are asked over it. Every Redis command is here.
//!
//! An answer counts only within its time, and so does the question: a command that was written in time
//! and carried out late, by a server that stood still or over a line that did, would be a send that
//! nobody makes, and a sign of life of a process that long went on alone. So questions carry the
//! instant, by the server's clock, after which the script does nothing.
//!
//! There is no automatic reconnect: a new connection may lead to another server, or to one that lost its
//! memory. [`Link::open`] reads who it is, and the scripts are told.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lanekeeper_core::bucket::Bucket;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Script, ScriptInvocation};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::address;
use super::settings::{LinkError, RedisSettings};
use super::share::Share;

/// How long a process counts as present after it last asked.
pub(super) const PRESENT: Duration = Duration::from_secs(1);

/// A script, behind what all of them begin with.
macro_rules! script {
    ($file:literal) => {
        concat!(include_str!("clock.lua"), include_str!($file))
    };
}

pub(super) const TAKE: &str = script!("take.lua");
pub(super) const REPORT: &str = script!("report.lua");
pub(super) const BREAKER: &str = script!("breaker.lua");
pub(super) const CIRCUITS: &str = script!("circuits.lua");

pub(super) struct Scripts {
    take: Script,
    report: Script,
    pub(super) breaker: Script,
    pub(super) circuits: Script,
}

/// What the script decided.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub decision: Decision,
    /// For how long each bucket's destination wants nothing yet.
    pub silences: Vec<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Go,
    Wait { slot: i64, after: Duration },
    Later { after: Duration, bucket: usize },
}

/// What a process knows of a bucket and Redis may not.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub bucket: Bucket,
    /// Sends that are not counted there.
    pub owed: u32,
    /// For how long yet the last send uses up the bucket.
    pub used_up: Duration,
    pub silent: Duration,
}

pub struct Link {
    connection: MultiplexedConnection,
    settings: RedisSettings,
    /// Which server, and since which start of it.
    run_id: String,
    /// The server's clock when it last answered.
    clock: Mutex<(i64, Instant)>,
    pub(super) scripts: Scripts,
    pub(super) lost: CancellationToken,
}

impl Link {
    /// # Errors
    /// Where there is no server that answers.
    pub async fn open(settings: &RedisSettings) -> Result<Self, LinkError> {
        // An error means that somebody has chosen a provider already: it is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let connection = address::connect(settings, &tagged(&settings.prefix, "server")).await?;
        let mut link = Self {
            connection,
            settings: settings.clone(),
            run_id: String::new(),
            clock: Mutex::new((0, Instant::now())),
            scripts: Scripts {
                take: Script::new(TAKE),
                report: Script::new(REPORT),
                breaker: Script::new(BREAKER),
                circuits: Script::new(CIRCUITS),
            },
            lost: CancellationToken::new(),
        };
        let info = link.info("server").await?;
        link.run_id = field(&info, "run_id").unwrap_or_default().to_owned();
        link.look_at_clock().await?;
        Ok(link)
    }

    /// A section of what the server says of itself.
    ///
    /// # Errors
    /// Where it does not say.
    pub async fn info(&self, section: &'static str) -> Result<String, LinkError> {
        let mut command = redis::cmd("INFO");
        command.arg(section);
        self.ask(
            "reading its state",
            command.query_async(&mut self.connection.clone()),
        )
        .await
    }

    /// Whether it answers, and what its clock says.
    ///
    /// # Errors
    /// Where it does not.
    pub async fn look_at_clock(&self) -> Result<(), LinkError> {
        let command = redis::cmd("TIME");
        let (seconds, micros): (i64, i64) = self
            .ask(
                "reading its clock",
                command.query_async(&mut self.connection.clone()),
            )
            .await?;
        self.set_clock(seconds * 1_000_000 + micros);
        Ok(())
    }

    /// Whether this user may run scripts.
    ///
    /// # Errors
    /// Where it may not.
    pub async fn try_scripts(&self) -> Result<(), LinkError> {
        let mut command = redis::cmd("EVAL");
        command.arg("return 1").arg(0);
        self.ask(
            "running a script",
            command.query_async(&mut self.connection.clone()),
        )
        .await
    }

    /// Asks for a send, or, without buckets, shows that this process is there.
    pub(super) async fn take(
        &self,
        worker_id: i64,
        replicas: u32,
        buckets: &[Bucket],
        slot: Option<i64>,
        horizon: Duration,
    ) -> Result<Taken, LinkError> {
        let mut again = true;
        loop {
            let mut call = self.scripts.take.prepare_invoke();
            call.key(self.key("present")).key(self.key("server"));
            call.arg(worker_id).arg(&self.run_id).arg(replicas);
            call.arg(self.now() + micros(self.settings.timeout));
            call.arg(micros(PRESENT))
                .arg(micros(horizon))
                .arg(slot.unwrap_or(0));
            for bucket in buckets {
                call.key(self.bucket_key(bucket));
                let interval = bucket.rate.interval();
                call.arg(interval.as_nanos() as f64 / 1e3)
                    .arg(micros(bucket.tolerance()));
                for number in Share::of(bucket, replicas).for_script() {
                    call.arg(number);
                }
                call.arg(micros(bucket.rate.per()));
            }
            let answer: Vec<i64> = self.run("deciding on a send", &call).await?;
            let [what, now, wait, slot, bucket, ref silences @ ..] = answer[..] else {
                return Err(LinkError::Clock);
            };
            self.set_clock(now);
            let after = duration(wait);
            let decision = match what {
                0 => Decision::Go,
                1 => Decision::Wait { slot, after },
                2 => Decision::Later {
                    after,
                    bucket: usize::try_from(bucket).unwrap_or(0),
                },
                // Asked too late by its clock: once more, for it may have been set.
                _ if again => {
                    again = false;
                    continue;
                }
                _ => return Err(LinkError::Clock),
            };
            return Ok(Taken {
                decision,
                silences: silences.iter().copied().map(duration).collect(),
            });
        }
    }

    /// Tells what happened to buckets.
    pub(super) async fn report(&self, reports: &[Report]) -> Result<(), LinkError> {
        let mut call = self.scripts.report.prepare_invoke();
        for report in reports {
            call.key(self.bucket_key(&report.bucket));
            call.arg(micros(report.bucket.rate.interval()))
                .arg(report.owed);
            call.arg(micros(report.used_up)).arg(micros(report.silent));
        }
        let now: i64 = self.run("taking note of a pause", &call).await?;
        self.set_clock(now);
        Ok(())
    }

    pub(super) async fn run<T: redis::FromRedisValue>(
        &self,
        what: &'static str,
        call: &ScriptInvocation<'_>,
    ) -> Result<T, LinkError> {
        self.ask(what, call.invoke_async(&mut self.connection.clone()))
            .await
    }

    async fn ask<T>(
        &self,
        what: &'static str,
        question: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, LinkError> {
        timeout(self.settings.timeout, question)
            .await
            .map_err(|_| LinkError::Silent(what))?
            .map_err(|error| LinkError::Refused(what, error))
    }

    pub(super) fn key(&self, name: &str) -> String {
        tagged(&self.settings.prefix, name)
    }

    fn bucket_key(&self, bucket: &Bucket) -> String {
        self.key(&format!("bucket:{}", bucket.key))
    }

    fn set_clock(&self, now: i64) {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = (now, Instant::now());
    }

    /// The server's clock, a round trip behind at the most.
    fn now(&self) -> i64 {
        let (told, at) = *self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        told + micros(at.elapsed())
    }
}

/// A key. One hash tag for all: a script's keys must be in one slot of a cluster.
fn tagged(prefix: &str, name: &str) -> String {
    format!("{{{prefix}}}:{name}")
}

/// A value of `INFO`.
pub(super) fn field<'t>(info: &'t str, name: &str) -> Option<&'t str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

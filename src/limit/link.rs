//! A connection to Redis, with every command that is sent over it.
//!
//! An answer that comes after the time-out is ignored. A command must not take effect after it either: a server or a
//! network that stood still may run it late. It would then count a send that no process makes, and show a process as
//! present that has long continued alone. So each command carries a deadline by the server's clock, after which the
//! script changes nothing.
//!
//! There is no automatic reconnect, because a new connection may lead to another server, or to one that lost its
//! memory.
//! [`Link::open`] reads the server's run id, and passes it to the scripts.

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

/// A script, after the prelude that all of them share.
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

/// The script's decision.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub decision: Decision,
    /// For each bucket, the rest of the pause that its destination asked for.
    pub silences: Vec<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Go,
    Wait { slot: i64, after: Duration },
    Later { after: Duration, bucket: usize },
}

/// What a process knows about a bucket and Redis may not know.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub bucket: Bucket,
    /// Sends that Redis has not counted.
    pub owed: u32,
    /// How much longer the last send uses up the bucket.
    pub used_up: Duration,
    pub silent: Duration,
}

pub struct Link {
    connection: MultiplexedConnection,
    settings: RedisSettings,
    /// The server's run id, which changes with each of its starts.
    run_id: String,
    /// The server's clock when it last answered.
    clock: Mutex<(i64, Instant)>,
    pub(super) scripts: Scripts,
    pub(super) lost: CancellationToken,
}

impl Link {
    /// # Errors
    /// No server answers.
    pub async fn open(settings: &RedisSettings) -> Result<Self, LinkError> {
        // An error means that a provider was installed already; that one is used.
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

    /// Reads a section of the server's INFO.
    ///
    /// # Errors
    /// The server does not answer, or refuses.
    pub async fn info(&self, section: &'static str) -> Result<String, LinkError> {
        let mut command = redis::cmd("INFO");
        command.arg(section);
        self.ask(
            "reading its state",
            command.query_async(&mut self.connection.clone()),
        )
        .await
    }

    /// Reads the server's clock, which also shows that the server answers.
    ///
    /// # Errors
    /// It does not answer.
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

    /// Runs an empty script, to check that this user may run scripts.
    ///
    /// # Errors
    /// It may not.
    pub async fn try_scripts(&self) -> Result<(), LinkError> {
        let mut command = redis::cmd("EVAL");
        command.arg("return 1").arg(0);
        self.ask(
            "running a script",
            command.query_async(&mut self.connection.clone()),
        )
        .await
    }

    /// Asks for a send. Without buckets, it only shows that this process is present.
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
                // By the server's clock the deadline had passed. Retry once, because that clock may have been set.
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

    /// Reports to Redis what happened to buckets.
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

    /// The server's clock, at most one round trip behind.
    fn now(&self) -> i64 {
        let (told, at) = *self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        told + micros(at.elapsed())
    }
}

/// A key. All keys have one hash tag, because a script's keys must be in one slot of a cluster.
fn tagged(prefix: &str, name: &str) -> String {
    format!("{{{prefix}}}:{name}")
}

/// Reads one value of INFO's answer.
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

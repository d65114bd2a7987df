//! Inflicts what the plan says, when it says so, and heals what does not heal by itself.

use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::Signal;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_postgres::{Client, NoTls};

use crate::monitor::Deaths;
use crate::oracle::{Arrival, LaneName};
use crate::plan::{Fault, Plan};
use crate::scene::Scene;
use crate::support::{Dice, Line, RedisServer, Trap, Upstream, connect};
use crate::workload::Bursts;

/// More than the server has.
const MANY_CONNECTIONS: usize = 260;

/// Something that struck a worker, and what it held then.
#[derive(Clone, Debug)]
pub struct Strike {
    pub fault: Fault,
    pub at_ms: i64,
    pub sender: usize,
    pub held: Vec<LaneName>,
    /// When a frozen worker was woken.
    pub thawed_ms: Option<i64>,
}

/// Lanes of a worker that has something to lose, and how long to wait for that.
const OCCUPIED: usize = 8;
const OCCUPIED_WITHIN: Duration = Duration::from_millis(700);

enum Remedy {
    Employ(usize),
    Thaw { place: usize, strike: usize },
    CalmWorker(usize),
    CalmRedis(usize),
    CalmReceiver,
    BeginReceiver,
    Flap { left: u64, refusing: bool },
    Release(Vec<Client>),
    SetClock { place: usize },
    StartRedis,
    ThawRedis,
}

pub struct Timeline<'a> {
    scene: &'a mut Scene,
    dice: Dice,
    soon: bool,
    frozen_for: Duration,
    deaths: Deaths,
    bursts: Bursts,
    remedies: Vec<(Instant, Remedy)>,
    pub stopping: Vec<JoinHandle<ExitStatus>>,
    pub strikes: Vec<Strike>,
    pub inflicted: BTreeMap<Fault, usize>,
    /// What may make one event come once more.
    pub causes: usize,
}

impl<'a> Timeline<'a> {
    pub fn new(scene: &'a mut Scene, plan: &Plan, deaths: Deaths, bursts: Bursts) -> Self {
        Self {
            scene,
            // The plan's own rolls come from the same seed: these are others.
            dice: Dice::new(plan.seed ^ 0x00fa_017f_0a17),
            soon: plan.soon,
            frozen_for: plan.frozen_for(),
            deaths,
            bursts,
            remedies: Vec::new(),
            stopping: Vec::new(),
            strikes: Vec::new(),
            inflicted: BTreeMap::new(),
            causes: 0,
        }
    }

    pub async fn run(&mut self, plan: &Plan) {
        let begun = Instant::now();
        for (at, fault) in &plan.schedule {
            self.heal_until(begun + *at).await;
            eprintln!("{:>6} ms {fault:?}", begun.elapsed().as_millis());
            self.inflict(*fault).await;
        }
        while let Some(last) = self.remedies.iter().map(|(at, _)| *at).max() {
            self.heal_until(last).await;
        }
        self.scene.producers_proxy.disarm();
        for place in 0..self.scene.workers.len() {
            self.scene.workers[place].proxy.disarm();
            self.scene.employ(place);
        }
        self.scene.all_serve().await;
    }

    async fn heal_until(&mut self, until: Instant) {
        loop {
            let due = self
                .remedies
                .iter()
                .enumerate()
                .filter(|(_, (at, _))| *at <= until)
                .min_by_key(|(_, (at, _))| *at)
                .map(|(index, (at, _))| (index, *at));
            let Some((index, at)) = due else { break };
            sleep_until(at).await;
            let (_, remedy) = self.remedies.swap_remove(index);
            self.heal(remedy).await;
        }
        sleep_until(until).await;
    }

    fn later(&mut self, delay: Duration, remedy: Remedy) {
        self.remedies.push((Instant::now() + delay, remedy));
    }

    fn soon(&self, from_ms: u64, up_to_ms: u64) -> Duration {
        Duration::from_millis(from_ms + self.dice.roll(up_to_ms - from_ms))
    }

    async fn heal(&mut self, remedy: Remedy) {
        match remedy {
            Remedy::Employ(place) => self.scene.employ(place),
            Remedy::Thaw { place, strike } => {
                self.scene.signal(place, Signal::CONT);
                self.scene.workers[place].frozen = false;
                self.strikes[strike].thawed_ms = Some(now_ms());
            }
            Remedy::CalmWorker(place) => self.scene.workers[place].proxy.set(Line::default()),
            Remedy::CalmRedis(place) => self.line_to_redis(place, Line::default()),
            Remedy::CalmReceiver => self.scene.receiver_proxy.set(self.scene.calm_receiver()),
            Remedy::BeginReceiver => {
                let port = self.scene.receiver.begin().await;
                let upstream = Upstream::Tcp(([127, 0, 0, 1], port).into());
                self.scene.receiver_proxy.lead_to(upstream);
            }
            Remedy::Flap { left, refusing } => self.flap(left, refusing),
            Remedy::Release(clients) => drop(clients),
            Remedy::SetClock { place } => self.set_clock(place, 0),
            Remedy::StartRedis => self.redis().restart(),
            // Another fault may have killed it meanwhile.
            Remedy::ThawRedis if self.redis().is_running() => self.redis().signal(Signal::CONT),
            Remedy::ThawRedis => {}
        }
    }

    fn redis(&mut self) -> &mut RedisServer {
        self.scene.redis.as_mut().expect("the plan has a limit")
    }

    fn line_to_redis(&mut self, place: usize, line: Line) {
        let proxy = self.scene.workers[place].redis.as_ref();
        let proxy = proxy.expect("the plan has a limit");
        proxy.set(line);
        if line.refusing {
            proxy.cut();
        }
    }

    /// Workers that are there and not frozen.
    fn able(&self) -> Vec<usize> {
        let workers = self.scene.workers.iter().enumerate();
        workers
            .filter(|(_, place)| !place.frozen && place.process.is_some())
            .map(|(number, _)| number)
            .collect()
    }

    async fn inflict(&mut self, fault: Fault) {
        let able = self.able();
        let Some(victim) = able
            .get(self.dice.roll(able.len().max(1) as u64) as usize)
            .copied()
        else {
            return;
        };
        if fault.strikes_a_worker() {
            self.occupy(victim).await;
        }
        *self.inflicted.entry(fault).or_default() += 1;
        self.causes += match fault {
            Fault::FreezeWorker | Fault::SilenceWorker => 3,
            // With short time-outs a slow line costs the trust.
            Fault::DelayWorker | Fault::ThrottleWorker if self.soon => 3,
            _ => usize::from(fault.costs_repeats()),
        };
        match fault {
            Fault::KillWorker => self.kill(victim).await,
            Fault::FreezeWorker => self.freeze(victim).await,
            Fault::StopWorker => {
                if let Some(process) = self.scene.workers[victim].process.take() {
                    self.stopping.push(tokio::spawn(process.stop()));
                }
                let back = self.soon(50, 600);
                self.later(back, Remedy::Employ(victim));
            }
            Fault::TerminateBackend => self.terminate("%").await,
            Fault::RestartServer => self.restart_server().await,
            Fault::FailOver => self.fail_over().await,
            Fault::ExhaustConnections => self.exhaust_connections().await,
            Fault::CutWorker => self.scene.workers[victim].proxy.cut(),
            Fault::CutProducers => self.scene.producers_proxy.cut(),
            Fault::DelayWorker | Fault::ThrottleWorker | Fault::SilenceWorker => {
                let delay = self.soon(5, 40);
                self.scene.workers[victim].proxy.set(match fault {
                    Fault::DelayWorker => Line {
                        delay,
                        ..Line::default()
                    },
                    Fault::ThrottleWorker => Line {
                        bytes_per_s: Some(60_000),
                        ..Line::default()
                    },
                    _ => Line {
                        silent: true,
                        ..Line::default()
                    },
                });
                let until = self.soon(800, 4500);
                self.later(until, Remedy::CalmWorker(victim));
            }
            Fault::CutAfterCommit => self.scene.producers_proxy.lay(Trap::Commit),
            Fault::CutAfterSettlement => self.scene.workers[victim].proxy.lay(Trap::Settlement),
            Fault::CutAfterClaim => self.scene.workers[victim].proxy.lay(Trap::Claim),
            Fault::SlowReceiver => {
                let delay = self.soon(50, 400);
                self.scene.receiver_proxy.set(Line {
                    delay,
                    ..Line::default()
                });
                let until = self.soon(500, 2000);
                self.later(until, Remedy::CalmReceiver);
            }
            Fault::FlapReceiver => {
                let left = 4 + self.dice.roll(6);
                self.flap(left, true);
            }
            Fault::HalveAnswers => {
                self.scene.receiver_proxy.set(Line {
                    answer_bytes: Some(10),
                    ..self.scene.calm_receiver()
                });
                let until = self.soon(100, 700);
                self.later(until, Remedy::CalmReceiver);
            }
            Fault::KillReceiver => {
                self.scene.receiver.kill().await;
                self.scene.receiver_proxy.cut();
                let back = self.soon(50, 700);
                self.later(back, Remedy::BeginReceiver);
            }
            Fault::JumpClock => {
                let minutes = 1 + i64::try_from(self.dice.roll(4)).unwrap_or(0);
                let sign = if self.dice.roll(2) == 0 { 1 } else { -1 };
                self.set_clock(victim, sign * minutes * 60);
                let until = self.soon(1200, 2500);
                self.later(until, Remedy::SetClock { place: victim });
            }
            Fault::KillRedis => {
                self.redis().kill();
                let back = self.soon(100, 3000);
                self.later(back, Remedy::StartRedis);
            }
            Fault::CutRedis | Fault::DelayRedis | Fault::SilenceRedis => {
                let delay = self.soon(5, 300);
                let line = Line {
                    delay: if fault == Fault::DelayRedis {
                        delay
                    } else {
                        Duration::ZERO
                    },
                    refusing: fault == Fault::CutRedis,
                    silent: fault == Fault::SilenceRedis,
                    ..Line::default()
                };
                self.line_to_redis(victim, line);
                // Past the moment from which it sends on its own.
                let until = self.soon(300, 5000);
                self.later(until, Remedy::CalmRedis(victim));
            }
            Fault::FreezeRedis => {
                // One that was killed by the fault before stands still already.
                if self.redis().is_running() {
                    self.redis().signal(Signal::STOP);
                    let until = self.soon(300, 3000);
                    self.later(until, Remedy::ThawRedis);
                }
            }
        }
    }

    /// Has something enqueued, and waits a moment for the worker to be at it.
    async fn occupy(&self, place: usize) {
        self.bursts.ask();
        let until = Instant::now() + OCCUPIED_WITHIN;
        while Instant::now() < until && self.scene.held(place).await.len() < OCCUPIED {
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn strike(&mut self, fault: Fault, place: usize) -> Option<usize> {
        // The server may be unable to tell right now.
        let held = self.scene.held(place).await;
        let process = self.scene.workers[place].process.as_ref()?;
        self.strikes.push(Strike {
            fault,
            at_ms: now_ms(),
            sender: process.sender,
            held,
            thawed_ms: None,
        });
        Some(self.strikes.len() - 1)
    }

    async fn kill(&mut self, place: usize) {
        self.strike(Fault::KillWorker, place).await;
        if let Some(process) = self.scene.workers[place].process.take() {
            process.kill().await;
        }
        let back = self.soon(200, 2500);
        self.later(back, Remedy::Employ(place));
    }

    async fn freeze(&mut self, place: usize) {
        let Some(strike) = self.strike(Fault::FreezeWorker, place).await else {
            return;
        };
        self.scene.signal(place, Signal::STOP);
        self.scene.workers[place].frozen = true;
        self.later(self.frozen_for, Remedy::Thaw { place, strike });
    }

    async fn terminate(&self, purpose: &str) {
        let call = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name LIKE 'lanekeeper' || $1
                    ORDER BY application_name, pid OFFSET $2 LIMIT 1";
        let place = i64::try_from(self.dice.roll(12)).unwrap_or(0);
        self.scene
            .client
            .query(call, &[&purpose, &place])
            .await
            .unwrap();
    }

    async fn restart_server(&mut self) {
        self.deaths.begins();
        let crashed = self.scene.ground.crash().await;
        self.dice.pause(600).await;
        let server = crashed.start().await;
        self.scene.ground.is_back(server);
        self.scene.client = connect(self.scene.ground.url()).await;
        self.deaths.is_over(self.scene.ground.url());
    }

    async fn fail_over(&mut self) {
        self.deaths.begins();
        if self.scene.ground.fail_over().await {
            let upstream = Upstream::of(self.scene.ground.url());
            // As an address that moves: the proxies lead to the new server.
            let workers = self.scene.workers.iter().map(|place| &place.proxy);
            for proxy in workers.chain([&self.scene.producers_proxy]) {
                proxy.lead_to(upstream.clone());
            }
            self.scene.client = connect(self.scene.ground.url()).await;
        }
        self.deaths.is_over(self.scene.ground.url());
    }

    /// Takes what connections there are, then ends those that hold lanes: they cannot be opened anew.
    async fn exhaust_connections(&mut self) {
        let url = self.scene.ground.quick_url();
        let mut hogs = Vec::new();
        for _ in 0..MANY_CONNECTIONS {
            match tokio_postgres::connect(&url, NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    hogs.push(client);
                }
                Err(_) => break,
            }
        }
        self.terminate(" lanes").await;
        // What became free just now.
        while let Ok((client, connection)) = tokio_postgres::connect(&url, NoTls).await {
            tokio::spawn(connection);
            hogs.push(client);
            if hogs.len() > MANY_CONNECTIONS {
                break;
            }
        }
        let until = self.soon(500, 2000);
        self.later(until, Remedy::Release(hogs));
    }

    fn flap(&mut self, left: u64, refusing: bool) {
        self.scene.receiver_proxy.set(Line {
            refusing,
            ..self.scene.calm_receiver()
        });
        if refusing {
            // A request that was accepted loses its answer.
            self.scene.receiver_proxy.cut();
            self.causes += 1;
        }
        if left == 0 {
            self.scene.receiver_proxy.set(self.scene.calm_receiver());
            return;
        }
        let next = self.soon(30, 200);
        let flap = Remedy::Flap {
            left: left - 1,
            refusing: !refusing,
        };
        self.later(next, flap);
    }

    fn set_clock(&self, place: usize, seconds: i64) {
        if let Some(file) = &self.scene.workers[place].clock {
            std::fs::write(file, format!("{seconds:+}")).unwrap();
        }
    }
}

pub fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// For each of the lanes that the strike left: how long after it the lane came from somebody else.
pub fn recovery_ms(strike: &Strike, arrivals: &[Arrival]) -> Vec<i64> {
    let first = |lane: &LaneName| {
        arrivals
            .iter()
            .find(|one| {
                one.at_ms > strike.at_ms
                    && one.sender != strike.sender
                    && (&one.subscription, &one.session) == (&lane.0, &lane.1)
            })
            .map(|one| one.at_ms - strike.at_ms)
    };
    strike.held.iter().filter_map(first).collect()
}

/// What a thawed worker sent that others had delivered while it was frozen. What was refused meanwhile is a retry, or a
/// dead letter that was requeued: whoever has the lane by then sends it.
pub fn stale(strike: &Strike, arrivals: &[Arrival]) -> usize {
    let Some(thawed_ms) = strike.thawed_ms else {
        return 0;
    };
    let while_frozen = |one: &&Arrival| {
        (strike.at_ms..thawed_ms).contains(&one.at_ms)
            && one.sender != strike.sender
            && !one.refused
    };
    arrivals
        .iter()
        .filter(|one| one.sender == strike.sender && one.at_ms >= thawed_ms)
        .filter(|one| {
            arrivals
                .iter()
                .filter(while_frozen)
                .any(|other| (other.id, &other.subscription) == (one.id, &one.subscription))
        })
        .count()
}

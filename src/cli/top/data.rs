//! What `top` shows, and what it does to it.

use std::iter;
use std::time::Duration;

use jiff::Timestamp;
use lanekeeper_config::Config;
use lanekeeper_core::error::chain;
use lanekeeper_postgres::database::Database;
use lanekeeper_postgres::inspect::{
    self, Deliveries, Delivery, LaneFilter, LaneStatus, SubscriptionStatus, WorkerStatus,
};
use lanekeeper_postgres::log::{self, Reader};
use lanekeeper_postgres::operate::{self, LaneAction};
use lanekeeper_postgres::{StoreError, connect};
use lanekeeper_producer::remote::Remote;
use serde::Deserialize;
use tokio::time::timeout;
use tokio_postgres::Client;

use super::remote::RemoteSource;
use crate::{Failure, delivery};

/// Rows of each view.
pub(super) const ROWS: i64 = 200;
/// Events of a session that is followed.
pub(super) const EVENTS: i64 = 100;
/// A reading or an action that takes longer is given up, and the connection with it.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// On record with the operator's name.
pub(super) const REASON: &str = "from lanekeeper top";

#[derive(Debug)]
pub struct Snapshot {
    pub subscriptions: Vec<Subscription>,
    pub lanes: Vec<LaneStatus>,
    pub workers: Vec<WorkerStatus>,
    pub followed: Option<Followed>,
    pub read_at: Timestamp,
}

#[derive(Debug, Deserialize)]
pub struct Subscription {
    #[serde(flatten)]
    pub status: SubscriptionStatus,
    pub delivery: Delivery,
}

/// The newest events of one session.
#[derive(Debug)]
pub struct Followed {
    /// Seq, type and instant of the append.
    pub events: Vec<(i64, String, Timestamp)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Lane {
        lane_id: i64,
        action: LaneAction,
        /// Only where this is still its head.
        head: Option<i64>,
    },
    Pause {
        subscription: String,
    },
    Resume {
        subscription: String,
    },
}

/// Where it is read from, also across restarts.
pub enum Source {
    Database(Box<Connection>),
    Worker(RemoteSource),
}

impl Source {
    /// The configured database, else the worker that `LANEKEEPER_URL` names. What is wrong with the settings is told before
    /// there is a picture.
    pub async fn open(config: &Config) -> Result<Self, Failure> {
        if config.database.url.is_none()
            && let Some(remote) = Remote::of_environment().map_err(Failure::usage)?
        {
            let source = RemoteSource::new(remote);
            source.read(None).await.map_err(Failure::failed)?;
            return Ok(Self::Worker(source));
        }
        let connection = Connection::open(config).await?;
        Ok(Self::Database(Box::new(connection)))
    }

    pub async fn read(&mut self, followed: Option<(String, String)>) -> Result<Snapshot, String> {
        match self {
            Self::Database(connection) => connection.read(followed).await,
            Self::Worker(remote) => remote.read(followed).await,
        }
    }

    /// Returns what became of it, for people.
    pub async fn act(&mut self, action: &Action) -> String {
        match self {
            Self::Database(connection) => connection.act(action).await,
            Self::Worker(remote) => remote.act(action).await,
        }
    }
}

/// A connection to the database, opened again when it is gone.
pub struct Connection {
    settings: Database,
    client: Option<Client>,
    frozen_after: Duration,
}

impl Connection {
    async fn open(config: &Config) -> Result<Self, Failure> {
        let client = connect::connect(&config.database).await?;
        Ok(Self {
            settings: connect::settings(&config.database)?,
            client: Some(client),
            frozen_after: delivery::frozen_after(config),
        })
    }

    async fn read(&mut self, followed: Option<(String, String)>) -> Result<Snapshot, String> {
        let frozen_after = self.frozen_after;
        let client = self.client().await?;
        let reading = timeout(ANSWER_WITHIN, snapshot(client, frozen_after, followed));
        let read = reading.await;
        self.keep_if_answered(read)
    }

    async fn act(&mut self, action: &Action) -> String {
        let client = match self.client().await {
            Ok(client) => client,
            Err(reason) => return format!("nothing was changed: {reason}"),
        };
        let acted = timeout(ANSWER_WITHIN, act(client, action)).await;
        match self.keep_if_answered(acted) {
            Ok(done) => done,
            Err(reason) => reason,
        }
    }

    async fn client(&mut self) -> Result<&mut Client, String> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            let connected = timeout(ANSWER_WITHIN, self.settings.connect()).await;
            let (client, connection) = connected
                .map_err(|_| "Postgres does not answer".to_owned())?
                .map_err(|error| chain(&error))?;
            // It ends with the client.
            tokio::spawn(connection);
            self.client = Some(client);
        }
        self.client
            .as_mut()
            .ok_or_else(|| "there is no connection".to_owned())
    }

    fn keep_if_answered<T>(
        &mut self,
        answer: Result<Result<T, StoreError>, tokio::time::error::Elapsed>,
    ) -> Result<T, String> {
        match answer {
            Ok(answer) => answer.map_err(|error| chain(&error)),
            Err(_) => {
                self.client = None;
                Err(format!("Postgres did not answer within {ANSWER_WITHIN:?}"))
            }
        }
    }
}

async fn snapshot(
    client: &mut Client,
    frozen_after: Duration,
    followed: Option<(String, String)>,
) -> Result<Snapshot, StoreError> {
    // Lanes: what is held up comes first, then what else has something to do.
    let reading = inspect::begin(client).await?;
    let status = inspect::status(&reading, ROWS, inspect::LANES_LOOKED_AT, iter::empty()).await?;
    let deliveries: Deliveries = inspect::deliveries(&reading, frozen_after).await?;
    let mut ids = Vec::new();
    for held_up in [true, false] {
        let filter = LaneFilter {
            held_up,
            ..LaneFilter::default()
        };
        for (id, _) in inspect::active_lanes(&reading, filter, ROWS).await? {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
    }
    ids.truncate(usize::try_from(ROWS).unwrap_or(usize::MAX));
    let mut lanes = inspect::lanes(&reading, &ids).await?;
    lanes.sort_by_key(|lane| ids.iter().position(|id| *id == lane.lane_id));
    let workers = inspect::workers(&reading, ROWS).await?;
    let followed = match followed {
        Some((stream, session)) => Some(Followed {
            events: events(&reading, &stream, &session).await?,
        }),
        None => None,
    };
    drop(reading);
    Ok(Snapshot {
        subscriptions: status
            .into_iter()
            .map(|status| Subscription {
                delivery: deliveries.of(status.subscription_id, status.paused_at.is_some()),
                status,
            })
            .collect(),
        lanes,
        workers,
        followed,
        read_at: Timestamp::now(),
    })
}

async fn events(
    client: &impl tokio_postgres::GenericClient,
    stream: &str,
    session: &str,
) -> Result<Vec<(i64, String, Timestamp)>, StoreError> {
    let session_id = match inspect::find_session(client, stream, session).await {
        Ok(session_id) => session_id,
        Err(inspect::FindError::Store(error)) => return Err(error),
        // It expired meanwhile.
        Err(_) => return Ok(Vec::new()),
    };
    let newest = log::newest_seq(client, session_id).await?;
    let mut reader = Reader::new(session_id, (newest - EVENTS + 1).max(1));
    let mut events = Vec::new();
    loop {
        let page = reader.page(client).await?;
        if page.is_empty() || reader.next_seq > newest {
            events.extend(page);
            break;
        }
        events.extend(page);
    }
    Ok(events
        .into_iter()
        .rev()
        .map(|event| (event.seq, event.event_type, event.created_at))
        .collect())
}

async fn act(client: &mut Client, action: &Action) -> Result<String, StoreError> {
    match action {
        Action::Lane {
            lane_id,
            action,
            head,
        } => {
            let state =
                operate::change_lane(&*client, *lane_id, *action, Some(REASON), *head).await?;
            Ok(lane_told(*lane_id, *action, &state))
        }
        Action::Pause { subscription } => {
            let paused = operate::pause_subscription(&*client, subscription, REASON).await?;
            Ok(pause_told(subscription, paused))
        }
        Action::Resume { subscription } => {
            let resumed = operate::resume_subscription(&*client, subscription).await?;
            Ok(resume_told(subscription, resumed))
        }
    }
}

pub(super) fn lane_told(lane_id: i64, action: LaneAction, state: &str) -> String {
    format!("lane {lane_id}: {}; it is {state} now", action.as_str())
}

pub(super) fn pause_told(subscription: &str, paused: bool) -> String {
    match paused {
        true => format!("{subscription} is paused"),
        false => format!("{subscription} was paused already, or is gone"),
    }
}

pub(super) fn resume_told(subscription: &str, resumed: bool) -> String {
    match resumed {
        true => format!("{subscription} is delivered again"),
        false => format!("{subscription} was not paused, or is gone"),
    }
}

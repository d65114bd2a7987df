//! Producers' transactions, on their connections. A call that waits is left pending until whoever it waits
//! for ends; that it does wait, and for whom, is asked of Postgres.

use std::sync::Arc;

use lanekeeper_postgres::append::{AppendError, NewEvent, enqueue, enqueue_many};
use tokio::time::timeout;

use crate::ensure;
use crate::ground::{LIMIT, until};
use crate::model::producer::{Answered, chosen};
use crate::operation::{Event, PRODUCERS, TYPES};
use crate::world::{Check, Pending, World, nth};

pub const SESSION_NAMES: [&str; 3] = ["a", "b", "c"];
const KEYS: [&str; 2] = ["one", "two"];

impl World {
    /// Whether the producer's connection can take a statement.
    fn is_free(&self, producer: usize) -> bool {
        self.pending[producer].is_none()
    }

    fn has_transaction(&self, producer: usize) -> bool {
        self.is_free(producer) && self.model.transactions[producer].is_some()
    }

    /// The n-th producer that has one.
    pub fn transaction(&self, n: usize) -> Option<usize> {
        nth(
            n,
            (0..PRODUCERS).filter(|producer| self.has_transaction(*producer)),
        )
    }

    async fn tell(&self, producer: usize, statement: &str) -> Check {
        let told = self.ground.producers[producer]
            .client
            .batch_execute(statement)
            .await;
        told.map_err(|error| format!("{statement}: {error:?}"))
    }

    pub async fn begin_transaction(&mut self, producer: usize, repeatable_read: bool) -> Check {
        if !self.is_free(producer) || self.model.transactions[producer].is_some() {
            return self.nothing();
        }
        // Its snapshot is that of its first statement.
        let begin = if repeatable_read {
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"
        } else {
            "BEGIN"
        };
        self.tell(producer, begin).await?;
        self.model.begin(producer, repeatable_read, false);
        Ok(())
    }

    pub async fn savepoint(&mut self, producer: usize) -> Check {
        if self.has_transaction(producer) {
            self.tell(producer, "SAVEPOINT here").await?;
            self.model.savepoint(producer);
        }
        Ok(())
    }

    pub async fn roll_back_to_savepoint(&mut self, producer: usize) -> Check {
        if self.has_transaction(producer) && self.model.roll_back_to_savepoint(producer) {
            self.tell(producer, "ROLLBACK TO here").await?;
            self.go_on().await?;
        }
        Ok(())
    }

    pub async fn end_transaction(&mut self, producer: usize, commit: bool) -> Check {
        if !self.has_transaction(producer) {
            return Ok(());
        }
        self.tell(producer, if commit { "COMMIT" } else { "ROLLBACK" })
            .await?;
        if commit {
            self.model.commit(producer);
        } else {
            self.model.roll_back(producer);
        }
        self.go_on().await
    }

    pub async fn enqueue(&mut self, producer: usize, events: Vec<Event>, many: bool) -> Check {
        if !self.is_free(producer) {
            return self.nothing();
        }
        let automatic = self.model.transactions[producer].is_none();
        if automatic {
            self.model.begin(producer, false, true);
        }
        if !self.model.call(producer, events.clone()) {
            if automatic {
                self.model.roll_back(producer);
            }
            return self.nothing();
        }
        let client = Arc::clone(&self.ground.producers[producer].client);
        let call: Pending = tokio::spawn(async move {
            let ids: Vec<_> = events.iter().map(|event| event.id.map(chosen)).collect();
            let new = |(event, id): (&Event, &Option<_>)| NewEvent {
                message_id: *id,
                dedupe_key: event.key.map(|key| KEYS[usize::from(key)]),
                priority: event.priority,
                ..NewEvent::new(SESSION_NAMES[event.session], TYPES[event.kind], "{}")
            };
            let new: Vec<NewEvent<'_>> = events.iter().zip(&ids).map(new).collect();
            if many {
                enqueue_many(&*client, "sim", &new).await
            } else {
                Ok(vec![enqueue(&*client, "sim", &new[0]).await?])
            }
        });
        self.pending[producer] = Some(call);
        self.go_on().await
    }

    /// Whoever waits for nobody, or no longer, has its answer; the others still wait for whom they must.
    pub async fn go_on(&mut self) -> Check {
        let called = |world: &Self| {
            (0..PRODUCERS)
                .filter(|at| world.pending[*at].is_some())
                .collect::<Vec<_>>()
        };
        // Whoever is answered may let go of what another waits for: the waits are looked at when all have been.
        while let Some(producer) = called(self)
            .into_iter()
            .find(|at| self.model.waits_for(*at).is_none())
        {
            self.resolve(producer).await?;
        }
        for producer in called(self) {
            if let Some(other) = self.model.waits_for(producer) {
                self.check_wait(producer, other).await?;
            }
        }
        Ok(())
    }

    async fn check_wait(&mut self, producer: usize, other: usize) -> Check {
        let pids = (
            self.ground.producers[producer].pid,
            self.ground.producers[other].pid,
        );
        let call = self.pending[producer]
            .as_ref()
            .expect("who waits is at a call");
        let blocked = "SELECT $2 = ANY (pg_blocking_pids($1))";
        let mut answered = false;
        until(
            "a producer waits for another, or has its answer",
            async || {
                answered = call.is_finished();
                let admin = &self.ground.admin;
                answered
                    || admin
                        .query_one(blocked, &[&pids.0, &pids.1])
                        .await
                        .unwrap()
                        .get(0)
            },
        )
        .await;
        ensure!(
            !answered,
            "producer {producer} has its answer, and did not wait for {other}"
        );
        *self.met.entry("calls that waited").or_default() += 1;
        Ok(())
    }

    /// Takes the answer to a producer's call, which waits for nobody.
    async fn resolve(&mut self, producer: usize) -> Check {
        let sessions: Vec<usize> = self.model.sessions_of_call(producer);
        let expected = self.model.answered(producer);
        let Some(pending) = self.pending[producer].take() else {
            return Ok(());
        };
        let automatic = self.model.transactions[producer]
            .as_ref()
            .is_some_and(|open| open.automatic);
        let answer = timeout(LIMIT, pending)
            .await
            .map_err(|_| "a call waits for nobody, and has no answer")?;
        let answer = answer.expect("the call does not panic");
        match (answer, expected) {
            (Ok(results), Answered::Done(expected)) => {
                let agree = results.len() == expected.len()
                    && results
                        .iter()
                        .zip(&expected)
                        .all(|(result, (seq, duplicate, id))| {
                            result.seq == *seq
                                && result.duplicate == *duplicate
                                && id.is_none_or(|id| id == result.message_id)
                        });
                ensure!(agree, "the producer was told {results:?}, not {expected:?}");
                for (result, session) in results
                    .iter()
                    .zip(sessions)
                    .filter(|(result, _)| !result.duplicate)
                {
                    self.model
                        .learn_id(producer, session, result.seq, result.message_id);
                }
                let again = results.iter().filter(|result| result.duplicate).count();
                *self.met.entry("duplicates of producers").or_default() += again;
                if automatic {
                    self.model.commit(producer);
                }
                Ok(())
            }
            (Err(AppendError::Store(error)), Answered::Refused)
                if error.sqlstate() == Some("40001") =>
            {
                *self.met.entry("snapshots refused").or_default() += 1;
                // Only a transaction of several statements has a snapshot that can be too old.
                self.tell(producer, "ROLLBACK").await
            }
            (answer, expected) => Err(format!(
                "the producer was told {answer:?}, not {expected:?}"
            )),
        }
    }
}

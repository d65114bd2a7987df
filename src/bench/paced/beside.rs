//! A load that goes on beside something else, until it is stopped.

use tokio::sync::watch;

use super::*;

/// The load while it goes on.
pub struct Beside {
    journal: Arc<Journal>,
    producers: JoinSet<Result<(), BenchError>>,
    stop: watch::Sender<bool>,
}

impl Beside {
    /// Appends the first event of each session of the load; the journal is that of the load and of its destination.
    pub async fn load(scratch: &Scratch, load: Load) -> Result<Arc<Journal>, BenchError> {
        load_sessions(scratch, load).await
    }

    /// Begins at once. Its time does not count.
    pub async fn start(
        scratch: &Scratch,
        journal: &Arc<Journal>,
        load: Load,
    ) -> Result<Self, BenchError> {
        let (stop, stopped) = watch::channel(false);
        let producers = producers_of(scratch, journal, load).await?;
        let begin = Instant::now();
        let mut running = JoinSet::new();
        for producer in producers {
            running.spawn(producer.run(Schedule::until_stopped(begin, stopped.clone())));
        }
        Ok(Self {
            journal: Arc::clone(journal),
            producers: running,
            stop,
        })
    }

    /// Ends the load, and waits until everything of it is delivered.
    pub async fn stop(mut self) -> Result<(), BenchError> {
        // Producers that failed have ended.
        let _ = self.stop.send(true);
        while let Some(ended) = self.producers.join_next().await {
            ended??;
        }
        let appended = self.journal.appended();
        self.journal.delivered(appended, PATIENCE).await
    }
}

//! The sources as this worker knows them: read again at most once a second, when a request asks for one.
//!
//! Secrets are read with them, so that one which is replaced in its file, or in the definition, counts a second later.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use lanekeeper_adapters::Environment;
use lanekeeper_core::source::{Definition, SourceDefinition, Template};
use lanekeeper_postgres::source;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::super::problem::Problem;
use super::super::problem_type;
use super::signature::Key;

/// How long what was read counts.
const BELIEVED_FOR: Duration = Duration::from_secs(1);
const READ_WITHIN: Duration = Duration::from_secs(5);

/// By name. The error says why this worker cannot receive for it.
type ByName = HashMap<String, Result<Arc<Loaded>, String>>;

pub(super) struct Sources {
    environment: Environment,
    /// Whoever finds it too old reads it again; the others wait for him.
    read: Mutex<Option<(Instant, ByName)>>,
}

/// A source that requests can be received for.
pub(super) struct Loaded {
    pub(super) id: i32,
    pub(super) definition: SourceDefinition,
    pub(super) templates: Templates,
    pub(super) key: Key,
}

pub(super) struct Templates {
    pub(super) session: Template,
    pub(super) content: Template,
    pub(super) message_id: Option<Template>,
    pub(super) channel_id: Option<Template>,
    pub(super) actor_id: Option<Template>,
    pub(super) actor_name: Option<Template>,
}

impl Sources {
    pub(super) fn new(environment: Environment) -> Self {
        let read = Mutex::new(None);
        Self { environment, read }
    }

    pub(super) async fn find(&self, pool: &Pool, name: &str) -> Result<Arc<Loaded>, Problem> {
        let mut read = self.read.lock().await;
        let is_old = |(at, _): &(Instant, ByName)| at.elapsed() >= BELIEVED_FOR;
        if read.as_ref().is_none_or(is_old) {
            let before = read.take().map(|(_, before)| before).unwrap_or_default();
            *read = Some((Instant::now(), self.load(pool, &before).await?));
        }
        let found = read.as_ref().and_then(|(_, by_name)| by_name.get(name));
        match found {
            Some(Ok(source)) => Ok(Arc::clone(source)),
            Some(Err(_)) => Err(Problem::later(
                problem_type::UNAVAILABLE,
                "this worker has no usable secret for the source; its log says why: nothing was enqueued",
                30,
            )),
            None => {
                let detail = format!("there is no source {:?}", Problem::excerpt(name));
                Err(Problem::new(problem_type::NOT_FOUND, detail)
                    .hint("write [source.NAME] into the file for `lanekeeper apply`"))
            }
        }
    }

    async fn load(&self, pool: &Pool, before: &ByName) -> Result<ByName, Problem> {
        let reading = async {
            let client = pool.get().await.map_err(|_| Problem::away())?;
            let read = source::list(&**client).await;
            read.map_err(|error| Problem::of_statement(&error))
        };
        let sources = timeout(READ_WITHIN, reading).await;
        let sources = sources.map_err(|_| Problem::away())??;
        let environment = self.environment.clone();
        // Secrets may stand in files.
        let building = tokio::task::spawn_blocking(move || {
            // A source that workers ask takes no requests.
            let built = sources.into_iter().filter_map(|source| {
                let Definition::Signed(definition) = source.definition else {
                    return None;
                };
                let built = build(source.id, definition, &environment).map(Arc::new);
                Some((source.name, built))
            });
            built.collect::<ByName>()
        });
        let built = building.await.map_err(|_| Problem::failed())?;
        for (name, refused) in &built {
            let Err(reason) = refused else { continue };
            let known = before.get(name).and_then(|before| before.as_ref().err());
            if known != Some(reason) {
                tracing::warn!(
                    source = name,
                    reason,
                    "requests for a source are refused until this is mended"
                );
            }
        }
        Ok(built)
    }
}

fn build(
    id: i32,
    definition: SourceDefinition,
    environment: &Environment,
) -> Result<Loaded, String> {
    let variable = &definition.secret_env;
    let secret = environment
        .secret(variable)
        .map_err(|error| error.to_string())?;
    let key = Key::new(&definition, &secret)
        .map_err(|reason| format!("what {variable} holds is no usable secret: {reason}"))?;
    let SourceDefinition {
        session,
        content,
        message_id,
        channel_id,
        actor_id,
        actor_name,
        ..
    } = &definition;
    let optional = |text: &Option<String>| text.as_deref().map(Template::parse).transpose();
    let templates = Templates {
        session: Template::parse(session)?,
        content: Template::parse(content)?,
        message_id: optional(message_id)?,
        channel_id: optional(channel_id)?,
        actor_id: optional(actor_id)?,
        actor_name: optional(actor_name)?,
    };
    Ok(Loaded {
        id,
        templates,
        key,
        definition,
    })
}

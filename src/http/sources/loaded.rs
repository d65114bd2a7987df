//! The sources as this worker knows them: read again at most once a second, when a request asks for one.
//!
//! Secrets are read with them, so that one which is replaced in its file, or in the definition, counts a second later.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use lanekeeper_adapters::Environment;
use lanekeeper_core::source::{Definition, Filter, SourceDefinition, Template};
use lanekeeper_postgres::source;

use super::signature::Key;
use crate::cached::{ByName, Cached, ask, newly_refused};
use crate::problem::Problem;
use crate::problem_type;

/// How long what was read counts.
const BELIEVED_FOR: Duration = Duration::from_secs(1);

pub(super) struct Sources {
    environment: Environment,
    read: Arc<Cached<ByName<Loaded>>>,
}

/// A source that requests can be received for.
pub(super) struct Loaded {
    pub(super) id: i32,
    pub(super) definition: SourceDefinition,
    pub(super) templates: Templates,
    pub(super) only: Filter,
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
        let read = Cached::new(BELIEVED_FOR);
        Self { environment, read }
    }

    pub(super) async fn find(&self, pool: &Pool, name: &str) -> Result<Arc<Loaded>, Problem> {
        let (pool, environment) = (pool.clone(), self.environment.clone());
        let by_name = self
            .read
            .get(async move |before| load(&pool, environment, before.as_deref()).await)
            .await?;
        match by_name.get(name) {
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
}

async fn load(
    pool: &Pool,
    environment: Environment,
    before: Option<&ByName<Loaded>>,
) -> Result<ByName<Loaded>, Problem> {
    let sources = ask(pool, async |client| source::list(client).await).await?;
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
        built.collect::<ByName<Loaded>>()
    });
    let built = building.await.map_err(|_| Problem::failed())?;
    for (source, reason) in newly_refused(before, &built) {
        tracing::warn!(
            source,
            reason,
            "requests for a source are refused until this is mended"
        );
    }
    Ok(built)
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
        only,
        signature,
        ..
    } = &definition;
    let optional = |text: &Option<String>| text.as_deref().map(Template::parse).transpose();
    let templates = Templates {
        session: Template::parse(session)?,
        content: Template::parse(content)?,
        message_id: match message_id.as_deref().or(signature.message_id()) {
            Some(text) => Some(Template::parse(text)?),
            None => None,
        },
        channel_id: optional(channel_id)?,
        actor_id: optional(actor_id)?,
        actor_name: optional(actor_name)?,
    };
    Ok(Loaded {
        id,
        only: Filter::parse(only)?,
        templates,
        key,
        definition,
    })
}

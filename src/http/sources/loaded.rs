//! The sources as this worker knows them: read again at most once a second, when a request asks for one.
//!
//! Secrets are read with them, so that one which is replaced in its file, or in the definition, counts a second later.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use lanekeeper_adapters::Environment;
use lanekeeper_core::source::{
    Definition, Filter, MAX_BYTES, Signature, SourceDefinition, Template, WebhookSource,
};
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
    pub(super) key: Key,
    pub(super) read_by: ReadBy,
}

/// What makes messages of its requests.
pub(super) enum ReadBy {
    Templates(Box<Signed>),
    Telegram(Box<Telegram>),
}

pub(super) struct Signed {
    pub(super) definition: SourceDefinition,
    pub(super) templates: Templates,
    pub(super) only: Filter,
}

pub(super) struct Telegram {
    pub(super) definition: WebhookSource,
    pub(super) session: Template,
}

impl Loaded {
    /// The longest body.
    pub(super) fn most_bytes(&self) -> u32 {
        match &self.read_by {
            ReadBy::Templates(signed) => signed.definition.max_bytes,
            ReadBy::Telegram(_) => MAX_BYTES,
        }
    }

    /// `None`: nothing is signed.
    pub(super) fn signature(&self) -> Option<Signature> {
        match &self.read_by {
            ReadBy::Templates(signed) => Some(signed.definition.signature),
            ReadBy::Telegram(_) => None,
        }
    }
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

    pub(super) fn environment(&self) -> &Environment {
        &self.environment
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
                "this worker has no usable secret, or no folder for attachments, for the source; its log says why: nothing was enqueued",
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
            let built = match source.definition {
                Definition::Polled(_) => return None,
                Definition::Webhook(definition) => telegram(source.id, definition, &environment),
                Definition::Signed(definition) => signed(source.id, definition, &environment),
            };
            Some((source.name, built.map(Arc::new)))
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

fn telegram(
    id: i32,
    definition: WebhookSource,
    environment: &Environment,
) -> Result<Loaded, String> {
    let variable = &definition.secret_env;
    let secret = secret(variable, environment)?;
    let key = Key::of_telegram(&secret).map_err(|reason| unusable(variable, &reason))?;
    if definition.chat.max_file_bytes.is_some() {
        if environment.attachments().is_none() {
            return Err(
                "this worker has no folder for attachments: set worker.attachments_dir".into(),
            );
        }
        // Not when somebody sends a file.
        if let Some(variable) = &definition.token_env {
            self::secret(variable, environment)?;
        }
    }
    let session = definition.webhook.template(&definition.chat.session)?;
    Ok(Loaded {
        id,
        key,
        read_by: ReadBy::Telegram(Box::new(Telegram {
            definition,
            session,
        })),
    })
}

fn secret(variable: &str, environment: &Environment) -> Result<String, String> {
    let secret = environment.secret(variable);
    secret.map_err(|error| error.to_string())
}

fn unusable(variable: &str, reason: &str) -> String {
    format!("what {variable} holds is no usable secret: {reason}")
}

fn signed(
    id: i32,
    definition: SourceDefinition,
    environment: &Environment,
) -> Result<Loaded, String> {
    let variable = &definition.secret_env;
    let secret = secret(variable, environment)?;
    let key = Key::new(&definition, &secret).map_err(|reason| unusable(variable, &reason))?;
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
    let only = Filter::parse(only)?;
    Ok(Loaded {
        id,
        key,
        read_by: ReadBy::Templates(Box::new(Signed {
            definition,
            templates,
            only,
        })),
    })
}

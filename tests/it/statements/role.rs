//! Roles for a test, which belong to the whole server, and connections with them.

use tokio_postgres::Client;

use crate::support::{TestDb, connect};

/// What docs/producers.md grants to a producer.
const PRODUCER_GRANTS: &str = "GRANT USAGE ON SCHEMA lanekeeper TO {role};
    GRANT EXECUTE ON FUNCTION
        lanekeeper.enqueue(text, text, text, jsonb, uuid, text, smallint, jsonb),
        lanekeeper.enqueue_many(text, jsonb),
        lanekeeper.seen(text, text, uuid)
    TO {role}";

/// A role that may log in. Dropped by [`Self::drop_role`]; a server of the tests' own goes as a whole.
pub struct Role {
    pub name: String,
    url: String,
}

impl Role {
    /// May connect and nothing else.
    pub async fn stranger(db: &TestDb, name: &str) -> Self {
        let owner = db.connect().await;
        let database: String = owner
            .query_one("SELECT current_database()", &[])
            .await
            .unwrap()
            .get(0);
        let name = format!("{database}_{name}");
        owner
            .batch_execute(&format!("CREATE ROLE {name} LOGIN PASSWORD 'for-tests'"))
            .await
            .unwrap();
        let mut url = url::Url::parse(db.url()).unwrap();
        url.set_username(&name).unwrap();
        url.set_password(Some("for-tests")).unwrap();
        Self {
            name,
            url: url.into(),
        }
    }

    /// May do what the documentation grants to producers.
    pub async fn producer(db: &TestDb, name: &str) -> Self {
        let role = Self::stranger(db, name).await;
        db.connect()
            .await
            .batch_execute(&PRODUCER_GRANTS.replace("{role}", &role.name))
            .await
            .unwrap();
        role
    }

    /// With its password.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn connect(&self) -> Client {
        connect(&self.url).await
    }

    /// All its connections must be closed.
    pub async fn drop_role(self, db: &TestDb) {
        db.connect()
            .await
            .batch_execute(&format!("DROP OWNED BY {0}; DROP ROLE {0}", self.name))
            .await
            .unwrap();
    }
}

//! Where a run takes place: a database of the test server, or one on a server of its own that may go
//! down with everything on it.

use crate::support::{Crashed, Server, TestDb, connect};

pub enum Ground {
    Shared(TestDb),
    Own(Box<OwnGround>),
}

pub struct OwnGround {
    server: Option<Server>,
    standby: Option<Server>,
    url: String,
}

impl Ground {
    pub async fn shared() -> Self {
        Self::Shared(TestDb::new().await)
    }

    /// A new database of the server, made from the one that is migrated.
    pub async fn own(server: Server, number: u64) -> Self {
        let mut url = url::Url::parse(&server.url).unwrap();
        let template = url.path().trim_start_matches('/').to_owned();
        let name = format!("run{number}");
        url.set_path("/postgres");
        let admin = connect(url.as_str()).await;
        let create = format!("CREATE DATABASE {name} TEMPLATE {template}");
        admin.batch_execute(&create).await.unwrap();
        url.set_path(&name);
        Self::Own(Box::new(OwnGround {
            server: Some(server),
            standby: None,
            url: url.into(),
        }))
    }

    /// Past all proxies.
    pub fn url(&self) -> &str {
        match self {
            Self::Shared(db) => db.url(),
            Self::Own(own) => &own.url,
        }
    }

    /// The same database without a password: many connections in a short time.
    pub fn quick_url(&self) -> String {
        match self {
            Self::Shared(db) => db.url().to_owned(),
            Self::Own(own) => {
                let server = own.server.as_ref().expect("it runs");
                let name = own.url.rsplit('/').next().unwrap_or_default();
                let (base, _) = server.postgres.url().rsplit_once('/').expect("a URL");
                format!("{base}/{name}")
            }
        }
    }

    pub async fn crash(&mut self) -> Crashed {
        let Self::Own(own) = self else {
            panic!("the server is everybody's")
        };
        own.server.take().expect("it runs").crash().await
    }

    pub fn is_back(&mut self, server: Server) {
        if let Self::Own(own) = self {
            own.server = Some(server);
        }
    }

    /// Gives the server a standby.
    pub async fn replicate(&mut self) {
        if let Self::Own(own) = self {
            let server = own.server.as_ref().expect("it runs");
            own.standby = Some(server.standby().await);
        }
    }

    /// The server dies for good and its standby is promoted. False where it has none.
    pub async fn fail_over(&mut self) -> bool {
        let Self::Own(own) = self else {
            return false;
        };
        let Some(standby) = own.standby.take() else {
            return false;
        };
        let server = own.server.take().expect("it runs");
        server.standby_has_all().await;
        drop(server.crash().await);
        standby.promote().await;
        let mut url = url::Url::parse(&own.url).unwrap();
        url.set_port(Some(standby.port())).unwrap();
        own.url = url.into();
        own.server = Some(standby);
        true
    }

    /// The server, without this run's database.
    pub async fn clear(self) -> Option<Server> {
        let Self::Own(own) = self else {
            return None;
        };
        if let Some(standby) = own.standby {
            // Nobody is to wait for it any more.
            let admin = connect(&own.url).await;
            for statement in [
                "ALTER SYSTEM RESET synchronous_standby_names",
                "SELECT pg_reload_conf()",
            ] {
                admin.batch_execute(statement).await.unwrap();
            }
            standby.stop().await;
        }
        let mut url = url::Url::parse(&own.url).unwrap();
        let name = url.path().trim_start_matches('/').to_owned();
        url.set_path("/postgres");
        let admin = connect(url.as_str()).await;
        let drop = format!("DROP DATABASE {name} WITH (FORCE)");
        admin.batch_execute(&drop).await.unwrap();
        own.server
    }
}

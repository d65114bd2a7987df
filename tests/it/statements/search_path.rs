//! A producer's role cannot have its own code run as the owner of the schema.
//!
//! PostgreSQL looks for unqualified type names in `pg_temp` first, unless the search path names it.
//! So a `SECURITY DEFINER` function with an empty search path resolves `timestamptz` to the caller's
//! temporary domain of that name, and runs the function in its CHECK as the owner.

use tokio_postgres::Client;

use crate::support::TestDb;

/// Types that the grammar does not qualify: a temporary domain may have their names.
const TYPES: [&str; 8] = [
    "bytea",
    "date",
    "inet",
    "jsonb",
    "name",
    "text",
    "timestamptz",
    "uuid",
];

/// A role that may do what the README grants to producers. Dropped by [`Self::drop_role`].
struct Producer {
    role: String,
    client: Client,
}

impl Producer {
    async fn new(db: &TestDb) -> Self {
        let client = db.connect().await;
        // Roles belong to the whole server, databases of tests have names of their own.
        let role: String = client
            .query_one("SELECT current_database() || '_producer'", &[])
            .await
            .unwrap()
            .get(0);
        client
            .batch_execute(&format!(
                "CREATE ROLE {role} NOLOGIN;
                 GRANT USAGE ON SCHEMA lanekeeper TO {role};
                 GRANT EXECUTE ON FUNCTION
                     lanekeeper.enqueue(text, text, text, jsonb, uuid, text, smallint, jsonb),
                     lanekeeper.enqueue_many(text, jsonb),
                     lanekeeper.seen(text, text, uuid),
                     lanekeeper.put_document(text, text, jsonb, bigint, text, jsonb, jsonb),
                     lanekeeper.patch_document(text, text, jsonb, bigint, text, jsonb, jsonb),
                     lanekeeper.delete_document(text, text, bigint, text, jsonb, jsonb),
                     lanekeeper.put_documents(jsonb),
                     lanekeeper.get_document(text, text, bigint, timestamptz),
                     lanekeeper.list_documents(text, text, int),
                     lanekeeper.document_history(text, text, bigint, int)
                 TO {role};
                 SET SESSION AUTHORIZATION {role};"
            ))
            .await
            .unwrap();
        Self { role, client }
    }

    /// Shadows every type of [`TYPES`] by a domain whose CHECK notes as whom it runs.
    async fn shadow_types(&self) {
        self.client
            .batch_execute(
                "CREATE FUNCTION pg_temp.note() RETURNS boolean LANGUAGE plpgsql AS $$
                 BEGIN
                     PERFORM pg_catalog.set_config('attack.ran_as', current_user, false);
                     RETURN true;
                 END $$;
                 SELECT pg_catalog.set_config('attack.ran_as', '', false)",
            )
            .await
            .unwrap();
        for name in TYPES {
            self.client
                .batch_execute(&format!(
                    "CREATE DOMAIN pg_temp.{name} AS pg_catalog.{name} CHECK (pg_temp.note())"
                ))
                .await
                .unwrap();
        }
    }

    /// Calls everything that a producer may call, and returns as whom the attacker's code ran.
    async fn attack(&self) -> String {
        let calls = [
            "SELECT lanekeeper.enqueue('runs', 's1', 'step', '{}'::pg_catalog.jsonb,
                 message_id => '019c0000-0000-7000-8000-000000000001'::pg_catalog.uuid, dedupe_key => 'k',
                 priority => 3::smallint, headers => '{\"a\": \"b\"}'::pg_catalog.jsonb)",
            "SELECT lanekeeper.enqueue('runs', 's1', 'step', '{}'::pg_catalog.jsonb)",
            "SELECT lanekeeper.enqueue_many('runs',
                 '[{\"session\": \"s1\", \"event_type\": \"step\", \"payload\": 1},
                   {\"session\": \"s2\", \"event_type\": \"step\", \"payload\": 1, \"dedupe_key\": \"d\",
                    \"message_id\": \"019c0000-0000-7000-8000-000000000002\"}]'::pg_catalog.jsonb)",
            "SELECT lanekeeper.seen('c', 's1', '019c0000-0000-7000-8000-000000000003'::pg_catalog.uuid)",
            "SELECT lanekeeper.put_document('k', 'c1', '{}'::pg_catalog.jsonb)",
            "SELECT lanekeeper.patch_document('k', 'c1', '{\"a\": {\"b\": null}}'::pg_catalog.jsonb, 1,
                 'own', '{}'::pg_catalog.jsonb, '{\"a\": 1}'::pg_catalog.jsonb)",
            "SELECT lanekeeper.delete_document('k', 'c1')",
            "SELECT lanekeeper.put_documents('[{\"kind\": \"k\", \"id\": \"c2\", \"body\": 1}]'::pg_catalog.jsonb)",
            "SELECT lanekeeper.get_document('k', 'c1', 1)",
            "SELECT lanekeeper.get_document('k', 'c1', at_time => pg_catalog.now())",
            "SELECT lanekeeper.list_documents('k')",
            "SELECT lanekeeper.document_history('k', 'c1')",
        ];
        for call in calls {
            // Shadowed types may make a call fail, which is no success of the attack.
            let _ = self.client.batch_execute(call).await;
        }
        self.client
            .query_one(
                "SELECT pg_catalog.current_setting('attack.ran_as', true)",
                &[],
            )
            .await
            .unwrap()
            .get(0)
    }

    async fn drop_role(self) {
        self.client
            .batch_execute(&format!(
                "RESET SESSION AUTHORIZATION; DROP OWNED BY {0}; DROP ROLE {0}",
                self.role
            ))
            .await
            .unwrap();
    }
}

/// Functions of the schema that resolve names when they run, and not by a path of their own.
const UNSAFE_FUNCTIONS: &str =
    "SELECT coalesce(array_agg(p.oid::regprocedure::text ORDER BY p.oid), '{}')
    FROM pg_proc AS p
    WHERE p.pronamespace = 'lanekeeper'::regnamespace
      -- A body in standard SQL is resolved when it is created, by its owner.
      AND p.prosqlbody IS NULL
      AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)";

#[tokio::test]
async fn every_function_looks_for_names_in_pg_catalog_before_pg_temp() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let functions: Vec<String> = client
        .query_one(UNSAFE_FUNCTIONS, &[])
        .await
        .unwrap()
        .get(0);
    assert!(functions.is_empty(), "{functions:?}");
    let definers: i64 = client
        .query_one(
            "SELECT count(*) FROM pg_proc
             WHERE pronamespace = 'lanekeeper'::regnamespace AND prosecdef",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert!(definers >= 3, "enqueue, enqueue_many and seen at least");
}

#[tokio::test]
async fn a_producers_temporary_domain_does_not_run_as_the_owner() {
    let db = TestDb::new().await;
    let producer = Producer::new(&db).await;
    producer.shadow_types().await;
    let ran_as = producer.attack().await;
    assert!(
        ran_as.is_empty() || ran_as == producer.role,
        "the producer's code ran as {ran_as}"
    );
    producer.drop_role().await;
}

/// The attack is one: with the empty path it succeeds.
#[tokio::test]
async fn with_an_empty_search_path_a_temporary_domain_would_run_as_the_owner() {
    let db = TestDb::new().await;
    let owner = db.connect().await;
    owner
        .batch_execute(
            "ALTER FUNCTION lanekeeper.enqueue(text, text, text, jsonb, uuid, text, smallint, jsonb)
                 SET search_path = '';
             ALTER FUNCTION lanekeeper.enqueue_many(text, jsonb) SET search_path = ''",
        )
        .await
        .unwrap();
    let name: String = owner
        .query_one("SELECT current_user::text", &[])
        .await
        .unwrap()
        .get(0);
    let producer = Producer::new(&db).await;
    producer.shadow_types().await;
    assert_eq!(producer.attack().await, name);
    producer.drop_role().await;
}

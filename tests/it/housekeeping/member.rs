//! Workers may log in as members of the role that owns the schema: what maintenance makes belongs to the owner, so that any
//! other member can replace and drop it.

use lanekeeper_postgres::maintenance;

use crate::statements::role::Role;
use crate::support::TestDb;

/// Relations of the schema that are not the owner's.
const STRANGE: &str =
    "SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'lanekeeper' AND c.relowner <> n.nspowner";
const OLD_DAY: &str = "(clock_timestamp() AT TIME ZONE 'UTC')::date - 40";

#[tokio::test]
async fn what_a_member_of_the_owner_makes_in_maintenance_is_the_owners_and_another_member_drops_it()
{
    let db = TestDb::new().await;
    let owner = db.connect().await;
    // A plain role: a member of a superuser is as good as the owner of everything.
    let owning = Role::stranger(&db, "owning").await;
    let members = [
        Role::stranger(&db, "one").await,
        Role::stranger(&db, "other").await,
    ];
    let hand_over = "SELECT format('ALTER %s %s OWNER TO %I', kind, name, $1::text) FROM (
        SELECT 'SCHEMA' AS kind, 'lanekeeper' AS name
        UNION ALL
        SELECT CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text
        FROM pg_class AS c WHERE c.relnamespace = 'lanekeeper'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
          AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i') AND c.relkind = 'S')
        UNION ALL
        SELECT 'ROUTINE', p.oid::regprocedure::text FROM pg_proc AS p WHERE p.pronamespace = 'lanekeeper'::regnamespace
    ) AS o";
    for row in owner.query(hand_over, &[&owning.name]).await.unwrap() {
        owner.batch_execute(row.get(0)).await.unwrap();
    }
    for member in &members {
        let grant = format!("GRANT {} TO {}", owning.name, member.name);
        owner.batch_execute(&grant).await.unwrap();
    }

    let [one, other] = [members[0].connect().await, members[1].connect().await];
    // As one of a day that no event was appended to since, and views that were moved last then.
    let made = format!("SELECT lanekeeper.create_event_partition({OLD_DAY})");
    assert!(one.query_one(&made, &[]).await.unwrap().get::<_, bool>(0));
    let since =
        "CREATE OR REPLACE VIEW lanekeeper.recent_since AS SELECT '2000-01-01'::date AS since";
    one.batch_execute(since).await.unwrap();
    assert!(maintenance::move_recent(&one).await.unwrap());
    maintenance::run(&one, 30, 7, false).await.unwrap();
    let strange = owner.query(STRANGE, &[]).await.unwrap();
    let strange: Vec<&str> = strange.iter().map(|row| row.get(0)).collect();
    assert_eq!(strange, [""; 0]);

    // In two calls: the first writes what must be seen before the drop.
    let there = format!(
        "SELECT to_regclass('lanekeeper.event_' || to_char({OLD_DAY}, 'YYYYMMDD')) IS NOT NULL"
    );
    for _ in 0..2 {
        maintenance::run(&other, 30, 7, false).await.unwrap();
    }
    let is_there: bool = owner.query_one(&there, &[]).await.unwrap().get(0);
    assert!(!is_there, "the other member dropped the day");
    drop((one, other));
    let back = format!("REASSIGN OWNED BY {} TO CURRENT_USER", owning.name);
    owner.batch_execute(&back).await.unwrap();
    for role in members.into_iter().chain([owning]) {
        role.drop_role(&db).await;
    }
}

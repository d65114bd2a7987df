//! Hosts that answer with a refusal.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::{server, url};
use crate::command::run;
use crate::support::TestDb;

/// A server that refuses everybody for this reason.
async fn refusing(sqlstate: &'static str) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            // A client that leaves early is as good.
            let _ = refuse(client, sqlstate).await;
        }
    });
    (port, serving)
}

async fn refuse(mut client: TcpStream, sqlstate: &str) -> std::io::Result<()> {
    const SSL_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();
    loop {
        let length = client.read_u32().await?;
        let mut message = vec![0; length as usize - 4];
        client.read_exact(&mut message).await?;
        if message == SSL_REQUEST {
            client.write_all(b"N").await?;
            continue;
        }
        let fields = format!("SFATAL\0VFATAL\0C{sqlstate}\0Mno\0\0");
        client.write_all(b"E").await?;
        client.write_u32(fields.len() as u32 + 4).await?;
        client.write_all(fields.as_bytes()).await?;
        return client.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_starts_up_or_is_full_is_passed_over_and_one_that_refuses_the_user_is_not() {
    let db = TestDb::new().await;
    let server = server(&db).await;
    for (sqlstate, told) in [
        ("57P03", None),
        ("53300", None),
        ("28P01", Some("does not let user")),
        ("28000", Some("does not let user")),
        ("3D000", Some("has no database")),
    ] {
        let (port, _serving) = refusing(sqlstate).await;
        let url = url(&db, &[port], &server);
        let ran = run(&["status"], &[("DATABASE_URL", &url)], "").await;
        match told {
            None => assert_eq!(ran.code, Some(0), "{sqlstate}: {}", ran.stderr),
            Some(told) => {
                assert_eq!(ran.code, Some(1), "{sqlstate}: {}", ran.stderr);
                assert!(ran.stderr.contains(told), "{sqlstate}: {}", ran.stderr);
            }
        }
    }
}

//! `lanekeeper health`: asks a worker's readiness probe, for images without a shell and for people.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use lanekeeper_config::Config;
use reqwest::{Client, Response, StatusCode, redirect};
use thiserror::Error;
use url::Url;

use super::Failure;
use super::output;

/// The time-out of the whole request. The caller, a kubelet for example, usually has its own of some seconds.
const WITHIN: Duration = Duration::from_secs(3);
const PROBE: &str = "/readyz";
/// Bytes of an answer: reasons are short.
const MOST_REASON: usize = 500;

/// Ask a worker whether it is ready: exit code 0, or 1 with the reason
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --url it asks the listener of this configuration (http.listen), on this machine.

Examples:
  lanekeeper health
  lanekeeper health --url http://10.0.0.7:8080/livez")]
pub struct Args {
    /// A worker's address, or one of its probes
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

#[derive(Debug, Error)]
enum HealthError {
    #[error("--url is not an http or https URL")]
    NotAUrl,
    #[error(
        "http.listen has port 0: the worker took a free one, and where it serves is not known here"
    )]
    UnknownPort,
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
    #[error("no worker answers at {place}")]
    Unreachable {
        place: String,
        source: reqwest::Error,
    },
    #[error("{place} answers {}: {reason}", .status.as_u16())]
    NotReady {
        place: String,
        status: StatusCode,
        reason: String,
    },
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let url = match &args.url {
        Some(url) => named(url),
        None => listening(config.http.listen),
    }
    .map_err(|error| {
        Failure::usage(error).advise("give the worker's address as --url http://HOST:PORT")
    })?;
    ask(url).await.map_err(Failure::failed)?;
    Ok(ExitCode::SUCCESS)
}

async fn ask(url: Url) -> Result<(), HealthError> {
    let place = place(&url);
    // Fails only where it is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder()
        // What answers in a worker's place says nothing about the worker.
        .no_proxy()
        .redirect(redirect::Policy::none())
        .timeout(WITHIN)
        .build()
        .map_err(HealthError::Client)?;
    let answer = client.get(url).send().await;
    let answer = answer.map_err(|error| HealthError::Unreachable {
        place: place.clone(),
        source: error.without_url(),
    })?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let reason = reason(answer).await;
    Err(HealthError::NotReady {
        place,
        status,
        reason,
    })
}

/// The first line of an answer, as far as it comes.
async fn reason(mut answer: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < MOST_REASON
        && let Ok(Some(more)) = answer.chunk().await
    {
        bytes.extend_from_slice(&more);
    }
    bytes.truncate(MOST_REASON);
    let text = String::from_utf8_lossy(&bytes);
    match text.lines().next().map(str::trim) {
        Some(line) if !line.is_empty() => output::plain(line).into_owned(),
        _ => "without a reason".to_owned(),
    }
}

/// An address without a path stands for its readiness probe.
fn named(text: &str) -> Result<Url, HealthError> {
    let mut url = Url::parse(text).map_err(|_| HealthError::NotAUrl)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(HealthError::NotAUrl);
    }
    if url.path() == "/" {
        url.set_path(PROBE);
    }
    Ok(url)
}

/// A listener on every address is reached on loopback.
fn listening(mut listen: SocketAddr) -> Result<Url, HealthError> {
    if listen.port() == 0 {
        return Err(HealthError::UnknownPort);
    }
    if listen.ip().is_unspecified() {
        listen.set_ip(match listen {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    named(&format!("http://{listen}"))
}

/// What is asked, without what may be secret of it.
fn place(url: &Url) -> String {
    let port = url.port().map_or(String::new(), |port| format!(":{port}"));
    let host = url.host_str().unwrap_or_default();
    format!("{}://{host}{port}{}", url.scheme(), url.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(listen: &str) -> Result<String, String> {
        let url = listening(listen.parse().unwrap());
        url.map(String::from).map_err(|error| error.to_string())
    }

    #[test]
    fn a_listener_on_every_address_is_asked_on_loopback() {
        assert_eq!(
            asked("0.0.0.0:8080").unwrap(),
            "http://127.0.0.1:8080/readyz"
        );
        assert_eq!(asked("[::]:9000").unwrap(), "http://[::1]:9000/readyz");
        assert_eq!(asked("10.1.2.3:80").unwrap(), "http://10.1.2.3/readyz");
        assert!(asked("127.0.0.1:0").unwrap_err().contains("port 0"));
    }

    #[test]
    fn an_address_stands_for_its_readiness_probe_and_a_path_for_itself() {
        let named = |text| named(text).map(String::from).ok();
        let ready = Some("http://a:1/readyz".to_owned());
        assert_eq!(
            (named("http://a:1"), named("http://a:1/")),
            (ready.clone(), ready)
        );
        assert_eq!(
            named("http://a:1/livez").as_deref(),
            Some("http://a:1/livez")
        );
        assert_eq!((named("a:1"), named("ftp://a/")), (None, None));
    }

    #[test]
    fn what_is_named_in_errors_has_no_password() {
        let url = named("https://me:hidden@balancer/readyz?token=hidden").unwrap();
        assert_eq!(place(&url), "https://balancer/readyz");
    }
}

//! A private Redis on a free loopback port, without persistence; it may be killed, frozen and started
//! again. It ends with the process that started it, also where that is killed.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The end of its standard input is the end of its owner.
const SUPERVISE: &str = "exec 3<&0 </dev/null
redis-server \"$@\" 3<&- >/dev/null 2>&1 &
echo $!
(read -r _ <&3; kill -KILL $!) >/dev/null 2>&1 &
wait $!";
const LIMIT: Duration = Duration::from_secs(20);

pub struct RedisServer {
    port: u16,
    directory: tempfile::TempDir,
    /// It comes before all options.
    file: Option<PathBuf>,
    options: Vec<String>,
    running: Option<Running>,
}

struct Running {
    supervisor: Child,
    server: Pid,
}

impl RedisServer {
    /// Returns when it answers.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Started with more of its options.
    pub fn with(options: &[&str]) -> Self {
        Self::run(None, options)
    }

    /// A sentinel with this configuration, which it writes to.
    pub fn sentinel(file: &Path) -> Self {
        Self::run(Some(file), &["--sentinel"])
    }

    fn run(file: Option<&Path>, options: &[&str]) -> Self {
        let has = Command::new("redis-server").arg("--version").output();
        assert!(
            has.is_ok(),
            "redis-server is not installed: run scripts/install-requirements.sh redis"
        );
        // Somebody else may take the port before the server does: then another one.
        for _ in 0..20 {
            let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
            let mut redis = Self {
                port: port.unwrap().port(),
                directory: tempfile::tempdir().unwrap(),
                file: file.map(Path::to_owned),
                options: options.iter().map(ToString::to_string).collect(),
                running: None,
            };
            if redis.try_run() {
                return redis;
            }
        }
        panic!("no Redis could be started");
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it answers to this command; nothing where it does not: a server that changes its role cuts connections.
    pub fn says(&self, command: &[&str]) -> String {
        let port = self.port.to_string();
        let ran = ask(&[&["-p", &port], command].concat());
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    /// Starts it again, on the same port and without a memory.
    pub fn restart(&mut self) {
        self.kill();
        let deadline = Instant::now() + LIMIT;
        while !self.try_run() {
            assert!(Instant::now() < deadline, "Redis does not come back");
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            // It may have ended by itself.
            let _ = kill_process(running.server, Signal::KILL);
            running.supervisor.wait().unwrap();
        }
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub fn signal(&self, signal: Signal) {
        let running = self.running.as_ref().expect("it runs");
        kill_process(running.server, signal).unwrap();
    }

    fn try_run(&mut self) -> bool {
        let mut supervisor = Command::new("sh")
            .args(["-c", SUPERVISE, "sh"])
            .args(&self.file)
            .args(["--bind", "127.0.0.1", "--port"])
            .arg(self.port.to_string())
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(self.directory.path())
            .args(&self.options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let stdout = supervisor.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        let server = Pid::from_raw(said.trim().parse().unwrap()).unwrap();
        self.running = Some(Running { supervisor, server });
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            let running = self.running.as_mut().unwrap();
            if running.supervisor.try_wait().unwrap().is_some() {
                self.running = None;
                return false;
            }
            if self.is_ours() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill();
        false
    }

    /// Whether it answers, and not somebody else on its port.
    fn is_ours(&self) -> bool {
        use std::io::{Read, Write};
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return false;
        };
        let pid = self.running.as_ref().unwrap().server.as_raw_nonzero();
        let mut told = [0; 4096];
        let asked = stream
            .write_all(b"INFO server\r\n")
            .and_then(|()| stream.set_read_timeout(Some(LIMIT)))
            .and_then(|()| stream.read(&mut told));
        let told = String::from_utf8_lossy(&told);
        asked.is_ok() && told.contains(&format!("process_id:{pid}\r"))
    }
}

/// A master with a replica, and a sentinel that promotes the one when the other is gone.
pub struct WatchedRedis {
    pub master: RedisServer,
    pub replica: RedisServer,
    pub sentinel: RedisServer,
    _directory: tempfile::TempDir,
}

impl WatchedRedis {
    /// Returns when the sentinel, to which the master has this name, knows the replica.
    pub fn start(name: &str) -> Self {
        let master = RedisServer::start();
        let port = master.port().to_string();
        let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &port]);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("sentinel.conf");
        let configuration = format!(
            "sentinel monitor {name} 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds {name} 500\n\
             sentinel failover-timeout {name} 3000\n"
        );
        std::fs::write(&file, configuration).unwrap();
        // The file comes first, and what else it is started with counts on top.
        let sentinel = RedisServer::sentinel(&file);
        let watched = Self {
            master,
            replica,
            sentinel,
            _directory: directory,
        };
        let deadline = Instant::now() + LIMIT;
        let known = watched.replica.port().to_string();
        while !watched
            .sentinel
            .says(&["sentinel", "replicas", name])
            .contains(&known)
        {
            assert!(Instant::now() < deadline, "the sentinel knows no replica");
            std::thread::sleep(Duration::from_millis(20));
        }
        watched
    }
}

/// Runs `redis-cli`, which must succeed; what it says.
pub fn redis_cli(arguments: &[&str]) -> String {
    let ran = ask(arguments);
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{said}");
    said
}

fn ask(arguments: &[&str]) -> std::process::Output {
    Command::new("redis-cli")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

//! `dns64bench agent`

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, anyhow};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{Failure, exit};
use crate::agent::handshake::{AgentRefusal, Hello, Welcome};
use crate::agent::lock::HostLock;
use crate::agent::outer;
use crate::agent::serve::serve;
use crate::lab::routes;
use crate::post::work::Post;

/// Serves the controller on standard input and output until the connection closes.
pub(super) fn run(inner: Option<u32>) -> Result<u8, Failure> {
    if io::stdin().is_terminal() || io::stdout().is_terminal() {
        let refusal = anyhow!(
            "the agent is started by `dns64bench run` over ssh and is not for terminals; \
             use `dns64bench doctor` to see what this host can do"
        );
        return Err(Failure::new(exit::USAGE, refusal));
    }
    match inner {
        None => supervise(),
        Some(outer) => work(outer),
    }
}

/// The outer process.
fn supervise() -> Result<u8, Failure> {
    let program = std::env::current_exe().context("cannot find out the path of this program")?;
    let mut inner = Command::new(program);
    inner.args(["agent", "--inner", &std::process::id().to_string()]);
    let status = outer::supervise(inner)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.ok_or_else(|| {
        let cleaned = "the agent was killed, and the programs that it had started were stopped";
        Failure::new(exit::ENVIRONMENT, anyhow!("{cleaned} ({status})"))
    })
}

/// The inner process.
fn work(outer: u32) -> Result<u8, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    outer::follow(outer)?;
    let pipes = "cannot use standard input and output";
    let input = File::from(io::stdin().as_fd().try_clone_to_owned().context(pipes)?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned().context(pipes)?);
    // Released at the end of the process, as late as possible.
    let mut lock = None;
    let admit = |hello: &Hello| {
        lock = Some(HostLock::take(&holder(hello))?);
        // Of an agent that was killed. Nobody else has any now.
        routes::sweep();
        Ok::<_, AgentRefusal>(Welcome::here())
    };
    let mut post = Post::new(Arc::clone(&interrupted));
    serve(input, output, interrupted, admit, &mut post)?;
    drop(post);
    drop(lock);
    Ok(exit::PASSED)
}

/// Description of the lock's owner, for other controllers that find the host in use.
fn holder(hello: &Hello) -> String {
    let pid = std::process::id();
    format!("{} (agent with PID {pid} on the host)", hello.controller)
}

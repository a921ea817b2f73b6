//! A host of a measurement, from the controller's view.

use std::fmt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::xdp::RELEASE_NS;

use super::work::Post;
use super::{HostQuery, NoAnswer, Reply, Request, Wanted};
use crate::agent::facts::HostFacts;
use crate::agent::link::AgentLink;
use crate::agent::trouble::LinkError;
use crate::lab::profile::Profile;
use crate::lab::{Blame, LabError};
use crate::machine::counters::CounterReading;
use crate::machine::network::Network;
use crate::trial::part::Gathered;

/// Timeout of requests that a host completes at once.
pub const PROMPT_NS: Nanos = 20 * SECOND;

/// Timeout of the request that opens a Tester, which may wait for a queue of AF_XDP.
pub const OPEN_NS: Nanos = PROMPT_NS + RELEASE_NS;

/// Time to transfer the ledgers of a trial, for any connection to the controller: some 40 octets for each of 10^8
/// queries take 32 s at 1 Gbit/s.
pub const TRANSFER_NS: Nanos = 600 * SECOND;

/// A host. When its last clone is dropped, everything that it started ends.
#[derive(Clone)]
pub struct Host {
    name: Arc<str>,
    way: PostAccess,
}

/// The way to its post.
#[derive(Clone)]
enum PostAccess {
    /// In this process.
    Here(Arc<Mutex<Post>>),
    /// At the other end of a connection.
    Link(Arc<Mutex<AgentLink>>),
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}", self.name)
    }
}

impl Host {
    /// This machine. Its trials end early when `interrupted` becomes true.
    pub fn here(interrupted: &Arc<AtomicBool>) -> Self {
        let post = Post::new(Arc::clone(interrupted));
        Self {
            name: "here".into(),
            way: PostAccess::Here(Arc::new(Mutex::new(post))),
        }
    }

    /// A host at the other end of a connection.
    pub fn at(name: &str, link: AgentLink) -> Self {
        Self {
            name: name.into(),
            way: PostAccess::Link(Arc::new(Mutex::new(link))),
        }
    }

    /// Returns its name in the plan.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the connection, locked; `None` for this machine.
    pub(crate) fn link(&self) -> Option<MutexGuard<'_, AgentLink>> {
        match &self.way {
            PostAccess::Here(_) => None,
            PostAccess::Link(link) => Some(locked(link)),
        }
    }

    /// Sends a request that the host completes within `limit_ns`. This machine takes the time that it needs.
    ///
    /// # Errors
    ///
    /// The host does not answer, or refuses; the error names it.
    pub fn ask(&self, request: Request, limit_ns: Nanos) -> Result<Reply, LabError> {
        match &self.way {
            PostAccess::Here(post) => locked(post).execute(request),
            PostAccess::Link(link) => {
                match locked(link).ask(&request, limit_ns).map_err(unanswered)? {
                    Reply::Refused(blame, what) => {
                        Err(blame.error(format!("host {}: {what}", self.name)))
                    }
                    reply => Ok(reply),
                }
            }
        }
    }

    /// Sends a request with a reply of one kind.
    ///
    /// # Errors
    ///
    /// Those of [`Self::ask`], or the host replies to something else.
    pub(crate) fn get<T>(&self, request: Request, limit_ns: Nanos) -> Result<T, LabError>
    where
        Reply: TryInto<T>,
    {
        let reply = self.ask(request, limit_ns)?;
        reply.try_into().map_err(|_| self.strange())
    }

    /// Returns the facts of the host.
    ///
    /// # Errors
    ///
    /// It does not answer.
    pub fn facts(&self) -> Result<HostFacts, LabError> {
        let facts: Box<HostFacts> = self.get(Request::Facts, PROMPT_NS)?;
        Ok(*facts)
    }

    /// Returns the version of its program of a profile, if the program prints one.
    ///
    /// # Errors
    ///
    /// It has no such program, or does not answer.
    pub fn find(
        &self,
        profile: &Profile,
        program: Option<&Path>,
    ) -> Result<Option<String>, LabError> {
        let wanted = Wanted {
            profile: profile.clone(),
            program: program.map(Path::to_path_buf),
        };
        let find = Request::Find(Box::new(wanted));
        self.get(find, PROMPT_NS)
    }

    /// Makes it send a query.
    pub(super) fn answer(
        &self,
        question: HostQuery,
    ) -> Result<Result<Vec<u8>, NoAnswer>, LabError> {
        let limit_ns = PROMPT_NS + question.wait_ns;
        self.get(Request::Ask(question), limit_ns)
    }

    /// Returns the counters of a network, with or without those of its queues; `None` if they cannot be read.
    pub fn reading(&self, network: &Network, queues: bool) -> Option<CounterReading> {
        let read = Request::Read(network.clone(), queues);
        self.get(read, PROMPT_NS).ok()?
    }

    /// Returns the data of its part of a trial.
    pub(crate) fn gather(&self) -> Result<Gathered, LabError> {
        let gathered: Box<Gathered> = self.get(Request::Gather, TRANSFER_NS)?;
        match gathered.is_whole() {
            true => Ok(*gathered),
            false => Err(self.strange()),
        }
    }

    fn strange(&self) -> LabError {
        let name = &self.name;
        Blame::Machine.error(format!(
            "host {name} sent an unexpected reply; this is a bug"
        ))
    }
}

/// Converts the error of a lost connection, which prevents all measurements.
pub(super) fn unanswered(error: LinkError) -> LabError {
    Blame::Machine.error(error.to_string())
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Applies `work` to all items in parallel, to a single one on this thread: a server that is started here ends with the
/// thread.
pub fn at_once<A: Send, B: Send>(all: Vec<A>, work: impl Fn(A) -> B + Sync) -> Vec<B> {
    if all.len() == 1 {
        return all.into_iter().map(work).collect();
    }
    let work = &work;
    std::thread::scope(|scope| {
        let begun: Vec<_> = all
            .into_iter()
            .map(|one| scope.spawn(move || work(one)))
            .collect();
        let ended = begun.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect()
    })
}

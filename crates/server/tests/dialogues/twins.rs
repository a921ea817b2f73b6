//! Two engines with the same input. One sends responses from its cache, the other clears that cache
//! each time and renders each response again. Their output must be equal.

use std::sync::Arc;

use dns64_transport::clock::Nanos;
use dns64d::cache::Cache;
use dns64d::counts::{Counts, Figure};
use dns64d::engine::actions::{Action, Actions, Client};
use dns64d::engine::{Engine, Seeds};
use dns64d::mailbox::ConnectionFailed;
use dns64d::settings::Settings;

pub(crate) struct Twins {
    first: Twin,
    forgetful: Twin,
}

struct Twin {
    engine: Engine,
    cache: Arc<Cache>,
    counts: Arc<Counts>,
    actions: Actions,
}

impl Twins {
    pub(crate) fn new(settings: &Settings, seeds: &Seeds) -> Self {
        let twin = || {
            let cache = Arc::new(Cache::new(&settings.cache, None));
            let counts = Arc::new(Counts::default());
            let (shared, counted) = (Arc::clone(&cache), Arc::clone(&counts));
            Twin {
                engine: Engine::new(settings, shared, counted, seeds),
                cache,
                counts,
                actions: Actions::default(),
            }
        };
        Self {
            first: twin(),
            forgetful: twin(),
        }
    }

    pub(crate) fn on_query(
        &mut self,
        client: Client,
        message: &[u8],
        frame: &mut [u8],
        now: Nanos,
        actions: &mut Actions,
    ) -> usize {
        self.forgetful.cache.forget_rendered();
        let mut answers = Vec::new();
        self.tell(actions, |twin, actions| {
            let len = twin.engine.on_query(client, message, frame, now, actions);
            answers.push(frame[..len].to_vec());
        });
        assert_eq!(answers[0], answers[1]);
        answers[0].len()
    }

    pub(crate) fn on_reply(
        &mut self,
        server: usize,
        port: usize,
        message: &[u8],
        now: Nanos,
        actions: &mut Actions,
    ) {
        self.tell(actions, |twin, actions| {
            twin.engine.on_reply(server, port, message, now, actions);
        });
    }

    pub(crate) fn on_unreachable(
        &mut self,
        server: usize,
        port: usize,
        now: Nanos,
        actions: &mut Actions,
    ) {
        self.tell(actions, |twin, actions| {
            twin.engine.on_unreachable(server, port, now, actions);
        });
    }

    pub(crate) fn on_connection(
        &mut self,
        exchange: u64,
        message: Result<&[u8], ConnectionFailed>,
        now: Nanos,
        actions: &mut Actions,
    ) {
        self.tell(actions, |twin, actions| {
            twin.engine.on_connection(exchange, message, now, actions);
        });
    }

    pub(crate) fn on_timer(&mut self, now: Nanos, actions: &mut Actions) {
        self.tell(actions, |twin, actions| twin.engine.on_timer(now, actions));
    }

    pub(crate) fn reload(&mut self, settings: &Settings, now: Nanos, actions: &mut Actions) {
        self.tell(actions, |twin, actions| {
            twin.engine.reload(settings, now, actions);
        });
    }

    pub(crate) fn flush(&mut self, below: Option<&[u8]>) -> usize {
        self.forgetful.cache.flush(below);
        self.first.cache.flush(below)
    }

    pub(crate) fn in_flight(&self, now: Nanos) -> Vec<String> {
        self.first.engine.in_flight(usize::MAX, now)
    }

    pub(crate) fn settings(&self) -> &Settings {
        self.first.engine.settings()
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.first.engine.next_deadline()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.first.engine.is_idle()
    }

    pub(crate) fn figures(&self) -> Vec<Figure> {
        self.first.counts.figures()
    }

    /// Passes an event to both engines, and compares their actions and counts.
    fn tell(&mut self, actions: &mut Actions, mut say: impl FnMut(&mut Twin, &mut Actions)) {
        let mut own = std::mem::take(&mut self.forgetful.actions);
        let before = actions.list().len();
        if before == 0 {
            own.clear();
        }
        say(&mut self.first, actions);
        say(&mut self.forgetful, &mut own);
        assert_eq!(actions.list()[before..], own.list()[before..]);
        for action in &actions.list()[before..] {
            if let Action::Reply { message, .. } | Action::Ask { message, .. } = action {
                assert_eq!(actions.message(message), own.message(message), "{action:?}");
            }
        }
        self.forgetful.actions = own;
        let figures = |twin: &Twin| {
            let figures = twin.counts.figures().into_iter();
            let others = figures.filter(|figure| figure.name != "rendered");
            others.map(|figure| figure.value).collect::<Vec<_>>()
        };
        assert_eq!(figures(&self.first), figures(&self.forgetful));
    }
}

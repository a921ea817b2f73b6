//! A scripted DNS64 server on the simulated network.

use dns64_transport::Link;
use dns64_transport::clock::{Clock, ManualClock, Nanos};
use dns64_transport::memory::MemoryLink;
use dns64_wire::pref64::Pref64;

use crate::script::{Conduct, Script};

pub(crate) struct Dut {
    link: MemoryLink,
    clock: ManualClock,
    script: Script,
}

impl Dut {
    pub(crate) fn new(link: MemoryLink, clock: &ManualClock, conduct: Conduct) -> Self {
        Self {
            link,
            clock: clock.clone(),
            script: Script::new(conduct, Pref64::WELL_KNOWN),
        }
    }

    /// Returns when the next delayed response is due.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.script.next_due()
    }

    pub(crate) fn turn(&mut self) {
        let (now, script) = (self.clock.now(), &mut self.script);
        self.link
            .receive(usize::MAX, |d| script.take(d.peer, d.payload, now))
            .unwrap();
        while let Some((peer, reply)) = self.script.due(now) {
            self.link.send_to(peer, &reply);
        }
    }
}

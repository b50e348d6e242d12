//! The MGS and those who register with it: each target's process does, at a NID that a restart
//! may have changed, and is told of every newer configuration.

use std::net::Ipv4Addr;

use sateen_types::{ClientId, Endpoint, Nid};
use sateen_wire::{Body, Message, MgsReply, Reply, ReplyBody, TargetInfo};

use super::World;
use crate::mgc::Mgc;

/// Of so many looks at the parameters one is followed by a change of them, which makes everybody
/// look again.
const LOOKS_PER_SET: u64 = 10;
/// Clients of the MGS in targets' processes count from here.
const REGISTRARS: u64 = 0x7e61_0000_0000;
/// The first port of a target; the next ones are those that it moves to.
const PORT: u16 = 2000;

impl World {
    /// A target's process has started, and registers.
    pub(super) fn registers(&mut self, me: Endpoint, boots: u64) {
        if me == Endpoint::Mgs {
            return;
        }
        // One restart in two finds it at another port, which is a change of the configuration.
        if boots > 1 && self.random.one_in(2) {
            *self.ports.entry(me).or_insert(PORT) += 1;
        }
        let port = self.ports.get(&me).copied().unwrap_or(PORT);
        let nid = Nid::Tcp { addr: Ipv4Addr::LOCALHOST, port, net: 0 };
        let info = TargetInfo { target: me, nids: nid.into(), inactive: false };
        self.next_registrar += 1;
        let id = ClientId(REGISTRARS + self.next_registrar);
        let setting = self.settings.remove(&me).unwrap_or_default();
        let (mgc, connect) = Mgc::new(me, id, (info, boots), setting, self.now_ns);
        self.registrars_ns = self.registrars_ns.min(mgc.asks_again_ns());
        self.mgcs.insert(me, mgc);
        self.send(connect);
    }

    /// The MGS has answered a target's process.
    pub(super) fn registrar_hears(&mut self, message: &Message) {
        let Body::Reply(reply) = &message.body else { return };
        let works = self.next_op <= self.config.operations;
        let sets = works && self.random.one_in(LOOKS_PER_SET);
        let Some(mgc) = self.mgcs.get_mut(&message.header.to) else { return };
        match mgc.on_reply(&message.header, reply, sets, self.now_ns) {
            Ok(Some(next)) => self.send(next),
            Ok(None) => {}
            Err(what) => self.fail(what),
        }
    }

    pub(super) fn registrar_ticks(&mut self, me: Endpoint) {
        let now_ns = self.now_ns;
        if now_ns < self.registrars_ns {
            return;
        }
        if let Some(again) = self.mgcs.get_mut(&me).and_then(|mgc| mgc.tick(now_ns)) {
            self.send(again);
        }
        let next = self.mgcs.values().map(Mgc::asks_again_ns).min();
        self.registrars_ns = next.unwrap_or(u64::MAX);
    }

    /// The process of a target has ended.
    pub(super) fn registrar_dies(&mut self, me: Endpoint) {
        if let Some(mgc) = self.mgcs.remove(&me) {
            self.settings.insert(me, mgc.into_setting());
        }
    }

    /// The MGS tells somebody of a configuration: one that was told under this version must
    /// have been this, whatever has crashed since. The same with parameters.
    pub(super) fn configuration_told(&mut self, reply: &Reply) {
        if let ReplyBody::Mgs(MgsReply::Params { version, params }) = &reply.body {
            let told = self.params.entry(*version).or_insert_with(|| params.clone());
            if told != params {
                let what = format!("the parameters of {version} were {told:?}, and are {params:?}");
                self.fail(what);
            }
        }
        let ReplyBody::Mgs(MgsReply::Config { version, targets }) = &reply.body else { return };
        let told = self.configs.entry(*version).or_insert_with(|| targets.clone());
        if told != targets {
            let what = format!("configuration {version} was {told:?}, and is {targets:?}");
            self.fail(what);
        }
    }

    /// Whether all targets are registered, and have heard of the last configuration.
    pub(super) fn all_registered(&self) -> bool {
        let last = self.configs.keys().next_back().copied().unwrap_or_default();
        let know = self.mgcs.values().filter(|mgc| mgc.knows(last)).count();
        know == self.hosts.len() - 1
    }
}

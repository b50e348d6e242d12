//! Whose turn it is: gives the clients' programs operations, begins those that nothing else is at,
//! and takes their results.

use sateen_types::{ClientId, Endpoint};

use super::*;

impl Running {
    /// Whether it is at something of these that it or the other has for itself.
    pub(super) fn meets(&self, touched: &[(Touched, bool)]) -> bool {
        self.touched.iter().any(|(mine, i_alone)| {
            touched.iter().any(|(theirs, alone)| mine == theirs && (*alone || *i_alone))
        })
    }
}

impl World {
    pub(super) fn is_free(&self, touched: &[(Touched, bool)]) -> bool {
        let mut held = self.running.values().chain(self.settling.iter().map(|s| &s.running));
        !held.any(|running| running.meets(touched))
    }

    /// Somebody has a client give back the locks that nobody uses.
    fn maybe_drop_unused(&mut self) {
        if self.config.seed % 4 != 2 || !self.random.one_in(300) {
            return;
        }
        let at = self.random.index(self.nodes.len());
        let Some(node) = self.nodes.get(at).filter(|node| !node.dead) else { return };
        let dropped = self.shape.mdts().try_for_each(|mdt| node.client.drop_unused(mdt));
        assert!(dropped.is_ok(), "it gives locks");
        self.wishes(node.id, None);
    }

    pub(super) fn give_work(&mut self) {
        let mounted = core::mem::take(&mut *lock(&self.mounted));
        for (client, done) in mounted {
            self.has_mounted(client, done);
        }
        self.maybe_leave();
        self.maybe_share();
        self.maybe_drop_unused();
        for node in 0..self.nodes.len() {
            for worker in 0..WORKERS {
                if self.next_op > self.config.operations {
                    continue;
                }
                // Who is at something has no turn, whatever his luck would have been.
                if !self.is_idle(node, worker) {
                    self.random.skip();
                } else if self.random.permille(700) {
                    self.give_op(node, worker);
                }
            }
        }
        // The first has begun before the others.
        let hangs = |r: &&Running| self.now_ns > r.began_ns.max(self.mdt_crashed_ns) + HANG_NS;
        let hang = self.running.values().next().filter(hangs);
        if let Some(hang) = hang.map(|r| format!("{:?} of {:?} never ends", r.op, r.client)) {
            self.fail(format!("{hang}{}", self.kernels_wait()));
        }
        self.maybe_fault();
        self.maybe_stop(self.report.operations, self.next_op <= self.config.operations);
        if self.config.network_faults && self.next_op <= self.config.operations {
            self.maybe_break(self.report.operations);
        }
        if self.config.network_faults && self.config.crashes {
            self.maybe_late();
            self.maybe_stand_still();
        }
    }

    /// Who waits for whom in the clients' kernels, to be said of what hangs.
    pub(super) fn kernels_wait(&self) -> String {
        let alive = self.nodes.iter().filter(|node| !node.dead);
        let all =
            alive.flat_map(|node| node.kernel.waits().into_iter().map(|wait| (node.id, wait)));
        all.map(|(id, wait)| format!("; in the kernel of client-{:x} {wait}", id.0)).collect()
    }

    /// A mount has ended.
    fn has_mounted(&mut self, client: ClientId, done: Answer<()>) {
        let alive = |node: &Node| node.id == client && !node.dead;
        let Some(at) = self.nodes.iter().position(alive) else { return };
        let Some(node) = self.nodes.get_mut(at) else { return };
        if done.is_ok() {
            node.mounted = true;
            return;
        }
        // The MGS was lost while it was asked: whoever mounts tries once more.
        if !self.config.crashes {
            return self.fail(format!("client-{:x} cannot mount: {done:?}", client.0));
        }
        node.dead = true;
        self.executor.kill(client.0);
        self.report.count("mount failed", 1);
        self.after(1_000_000, Event::NewClient(at));
    }

    /// Whether a program can begin something.
    fn is_idle(&self, index: usize, worker: usize) -> bool {
        self.nodes
            .get(index)
            .is_some_and(|node| node.mounted && node.busy.get(worker) == Some(&false))
    }

    fn give_op(&mut self, index: usize, worker: usize) {
        let Some(node) = self.nodes.get(index) else { return };
        if node.leaving != Leaving::No {
            let close = self.left_open(index, worker).map(|handle| Op::Close { handle });
            return self.maybe_begin(index, worker, close);
        }
        if self.give_late_op(index, worker) {
            return;
        }
        let Some(node) = self.nodes.get(index) else { return };
        if self.random.one_in(60) {
            return node.kernel.clone().shrink(&mut self.random);
        }
        let open: Vec<(Handle, u64, bool)> = node
            .open
            .get(worker)
            .into_iter()
            .flatten()
            .map(|(handle, _)| {
                let data = self.model.data.get(&handle.fid);
                let certain = data.is_none_or(Data::is_certain);
                (*handle, data.map_or(0, Data::size), certain)
            })
            .collect();
        let last_given = node.kernel.last_given();
        let all_open: Vec<Fid> = match self.config.given {
            true => node.open.iter().flatten().map(|(handle, _)| handle.fid).collect(),
            false => Vec::new(),
        };
        if let Some(op) = self.share(&open) {
            return self.maybe_begin(index, worker, Some(op));
        }
        if let Some(op) = self.group(index, &open) {
            let touched = op.touches(&self.model.now);
            if self.is_free(&touched) && !self.late.bars(&touched) {
                self.begin(index, worker, op, touched);
            }
            return;
        }
        if let Some(op) = self.row((index, worker), &open) {
            let (next, writes) = (self.next_op, matches!(op, Op::Write { .. }));
            self.maybe_begin(index, worker, Some(op));
            if self.next_op > next {
                self.takes_no_turn();
                if worker == 0 {
                    self.rowed(index, writes);
                }
            }
            return;
        }
        if let Some(op) = self.lock(index, &open) {
            return self.maybe_begin(index, worker, Some(op));
        }
        let open: Vec<_> =
            open.into_iter().filter(|(handle, ..)| self.is_not_for_locks(handle)).collect();
        let (random, names, osts) = (&mut self.random, &self.model.now, self.shape.osts);
        let given = self.config.given;
        let mut chooser = Chooser { random, names, osts, given };
        if given
            && chooser.random.one_in(6)
            && let Some(fid) = chooser.random.pick(&all_open).copied()
        {
            let op = chooser.beside(fid);
            return self.maybe_begin(index, worker, op);
        }
        if let Some(fid) = last_given.filter(|_| chooser.random.one_in(10)) {
            let op = match chooser.random.one_in(3) {
                true => chooser.touch(fid),
                false => chooser.look_into(fid),
            };
            return self.maybe_begin(index, worker, op);
        }
        let favourite = self.favourite.filter(|favourite| self.now_ns < favourite.until_ns);
        let op = match favourite {
            Some(Favourite { fid, again_at, .. }) if chooser.random.one_in(2) => {
                let again_at = again_at.filter(|_| chooser.random.one_in(2));
                chooser.write_to(fid, &open).map(|op| written_again(op, again_at))
            }
            _ => chooser.next(&open),
        };
        self.maybe_begin(index, worker, op);
    }

    /// Begins an operation, unless others are at what it touches.
    fn maybe_begin(&mut self, index: usize, worker: usize, op: Option<Op>) {
        let Some(op) = op else { return };
        let touched = op.touches(&self.model.now);
        let barred = self.late.bars(&touched) || self.grouping.bars(&op, &touched);
        if self.is_free(&touched) && !barred {
            self.begin(index, worker, op, touched);
        }
    }

    pub(super) fn begin(
        &mut self,
        index: usize,
        worker: usize,
        op: Op,
        touched: Vec<(Touched, bool)>,
    ) {
        let floor = self.model.last_transno();
        let Some(node) = self.nodes.get_mut(index) else { return };
        if let Some(busy) = node.busy.get_mut(worker) {
            *busy = true;
        }
        let lost = op.handle().is_some_and(|handle| {
            node.open.iter().flatten().any(|(open, lost)| *open == handle && *lost)
        });
        let id = self.next_op;
        self.next_op += 1;
        let running = Running {
            op: op.clone(),
            client: node.id,
            incarnation: node.client.incarnation(),
            lost,
            node: index,
            worker,
            began_ns: self.now_ns,
            id,
            dead: false,
            mdt_hit: lost || node.dirty.contains(&Endpoint::Mdt(0)),
            ost_hit: node.dirty.iter().any(|target| matches!(target, Endpoint::Ost(_))),
            in_doubt: false,
            end_then: None,
            transno: 0,
            floor,
            touched,
        };
        let client = running.client;
        let (kernel, done) = (node.kernel.clone(), self.done.clone());
        self.lock_begins(&running);
        self.group_begins(&running);
        self.running.insert(id, running);
        let task = self.executor.spawn(
            client.0,
            Box::pin(async move {
                let result = op.run(&kernel).await;
                lock(&done).push((id, result));
            }),
        );
        self.tasks.insert(task, id);
        self.note(|| format!("client-{:x}.{worker} begins {id}", client.0));
    }

    /// Takes the results of operations that ended.
    pub(super) fn finished(&mut self) {
        let done = core::mem::take(&mut *lock(&self.done));
        for (id, result) in done {
            let Some(running) = self.running.remove(&id) else { continue };
            self.tasks.retain(|_, op| *op != id);
            self.requests.retain(|_, op| *op != id);
            if let Some(busy) =
                self.nodes.get_mut(running.node).and_then(|node| node.busy.get_mut(running.worker))
            {
                *busy = false;
            }
            self.note(|| {
                let excuse = match (running.mdt_hit, running.ost_hit) {
                    (false, false) => "",
                    (true, _) => " (the MDT was lost)",
                    (_, true) => " (an OST was lost)",
                };
                format!(
                    "client-{:x}.{} ends {id} {}: {}{excuse}",
                    running.client.0,
                    running.worker,
                    judge::shown_op(&running.op),
                    judge::shown(&result)
                )
            });
            self.report.operations += 1;
            self.report.count(running.op.kind(), 1);
            let summary = format!("{id} {}", judge::shown(&result));
            self.report.mix(summary.as_bytes());
            self.is_wanted_elsewhere(&running);
            self.judge(running, result);
        }
    }
}

/// A write goes where the one was that is done again, if any is, unless it is for the end.
fn written_again(op: Op, again_at: Option<u64>) -> Op {
    match (op, again_at) {
        (Op::Write { handle, data, .. }, Some(offset)) if !handle.how.append => {
            Op::Write { handle, offset, data }
        }
        (op, _) => op,
    }
}

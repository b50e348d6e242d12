//! Random operations of two clients against a plain tree.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sateen_types::{ClientId, Errno, Fid};
use sateen_wire::*;

use crate::fsck;
use crate::harness::*;

/// Pairs of names with one 48-bit hash under this file system key, found by trying.
pub fn colliding_names(hash_key: u64) -> Vec<(&'static str, &'static str)> {
    let pairs = vec![
        ("n1ce80a1", "n31e2cd8"),
        ("n1865b42", "n2d4746d"),
        ("nb21527", "ndae613"),
        ("n26342bd", "n3778eac"),
    ];
    for (one, two) in &pairs {
        let hash = |text: &str| sateen_types::name_hash(hash_key, text.as_bytes());
        assert_eq!(hash(one), hash(two));
    }
    pairs
}

const NAMES: [&str; 8] = ["a", "b", "c", "n1ce80a1", "n31e2cd8", "nb21527", "ndae613", "d"];

#[derive(Debug, Clone, Default)]
struct Node {
    dir: bool,
    nlink: u32,
    opens: u32,
    entries: BTreeMap<String, Fid>,
    parent: Option<Fid>,
}

/// The tree as it should be.
struct Model {
    nodes: BTreeMap<Fid, Node>,
}

type Answer = Result<(), Errno>;

impl Model {
    fn new() -> Model {
        let root = Node { dir: true, nlink: 2, ..Node::default() };
        Model { nodes: BTreeMap::from([(ROOT, root)]) }
    }

    fn node(&mut self, fid: Fid) -> &mut Node {
        self.nodes.get_mut(&fid).expect("the model knows it")
    }

    fn dir(&self, fid: Fid) -> Result<&Node, Errno> {
        match self.nodes.get(&fid) {
            None => Err(Errno::ENOENT),
            Some(node) if !node.dir => Err(Errno::ENOTDIR),
            Some(node) if node.nlink == 0 => Err(Errno::ENOENT),
            Some(node) => Ok(node),
        }
    }

    fn find(&self, dir: Fid, name: &str) -> Result<Option<Fid>, Errno> {
        Ok(self.dir(dir)?.entries.get(name).copied())
    }

    fn make(&mut self, parent: Fid, name: &str, fid: Fid, dir: bool) -> Answer {
        if self.find(parent, name)?.is_some() {
            return Err(Errno::EEXIST);
        }
        let nlink = if dir { 2 } else { 1 };
        self.nodes.insert(fid, Node { dir, nlink, parent: Some(parent), ..Node::default() });
        self.add(parent, name, fid);
        Ok(())
    }

    fn add(&mut self, parent: Fid, name: &str, fid: Fid) {
        let dir = self.node(fid).dir;
        self.node(parent).entries.insert(name.into(), fid);
        self.node(parent).nlink += u32::from(dir);
        if dir {
            self.node(fid).parent = Some(parent);
        }
    }

    fn take(&mut self, parent: Fid, name: &str) -> Fid {
        let fid = self.node(parent).entries.remove(name).expect("it is there");
        let dir = self.node(fid).dir;
        self.node(parent).nlink -= u32::from(dir);
        fid
    }

    fn lose(&mut self, fid: Fid) {
        let node = self.node(fid);
        node.nlink = if node.dir { 0 } else { node.nlink - 1 };
        if node.nlink == 0 && node.opens == 0 {
            self.nodes.remove(&fid);
        }
    }

    fn unlink(&mut self, parent: Fid, name: &str, directory: bool) -> Answer {
        let fid = self.find(parent, name)?.ok_or(Errno::ENOENT)?;
        match (self.node(fid).dir, directory) {
            (true, false) => return Err(Errno::EISDIR),
            (false, true) => return Err(Errno::ENOTDIR),
            _ => {}
        }
        if !self.node(fid).entries.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.take(parent, name);
        self.lose(fid);
        Ok(())
    }

    fn link(&mut self, fid: Fid, parent: Fid, name: &str) -> Answer {
        if self.find(parent, name)?.is_some() {
            return Err(Errno::EEXIST);
        }
        let Some(node) = self.nodes.get_mut(&fid) else { return Err(Errno::ESTALE) };
        if node.dir {
            return Err(Errno::EPERM);
        }
        if node.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        node.nlink += 1;
        self.add(parent, name, fid);
        Ok(())
    }

    fn below(&self, mut fid: Fid, top: Fid) -> bool {
        loop {
            if fid == top {
                return true;
            }
            match self.nodes[&fid].parent {
                Some(parent) => fid = parent,
                None => return false,
            }
        }
    }

    fn rename(&mut self, from: (Fid, &str), to: (Fid, &str), flags: RenameFlags) -> Answer {
        if flags.exchange && flags.no_replace {
            return Err(Errno::EINVAL);
        }
        self.dir(from.0)?;
        self.dir(to.0)?;
        let source = self.find(from.0, from.1)?.ok_or(Errno::ENOENT)?;
        let target = self.find(to.0, to.1)?;
        if target.is_some() && flags.no_replace {
            return Err(Errno::EEXIST);
        }
        if target.is_none() && flags.exchange {
            return Err(Errno::ENOENT);
        }
        if target == Some(source) {
            return Ok(());
        }
        let source_dir = self.node(source).dir;
        if source_dir && self.below(to.0, source) {
            return Err(Errno::EINVAL);
        }
        if let Some(target) = target {
            let target_dir = self.node(target).dir;
            if target_dir && self.below(from.0, target) {
                return Err(if flags.exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
            }
            if !flags.exchange {
                match (source_dir, target_dir) {
                    (true, false) => return Err(Errno::ENOTDIR),
                    (false, true) => return Err(Errno::EISDIR),
                    _ if !self.node(target).entries.is_empty() => return Err(Errno::ENOTEMPTY),
                    _ => {}
                }
            }
        }
        self.take(from.0, from.1);
        if let Some(target) = target {
            self.take(to.0, to.1);
            if flags.exchange {
                self.add(from.0, from.1, target);
            } else {
                self.lose(target);
            }
        }
        self.add(to.0, to.1, source);
        Ok(())
    }
}

#[derive(Debug, Clone)]
struct Step {
    what: u8,
    client: bool,
    dirs: (u8, u8),
    names: (u8, u8),
    file: u8,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..34u8, any::<bool>(), any::<(u8, u8)>(), any::<(u8, u8)>(), any::<u8>())
        .prop_map(|(what, client, dirs, names, file)| Step { what, client, dirs, names, file });
    prop::collection::vec(step, 1..60)
}

struct Run {
    world: World,
    model: Model,
    /// Every FID there ever was, so that steps also hit what is gone.
    all: Vec<Fid>,
    open: Vec<(ClientId, Fid, OpenId)>,
}

impl Run {
    fn expect(&mut self, client: ClientId, request: MdtRequest, expected: Answer) {
        let shown = format!("{request:?}");
        let reply = self.world.call(client, request);
        assert_eq!(reply.error, expected.err(), "{shown}");
    }

    fn step(&mut self, step: &Step) {
        let client = if step.client { A } else { B };
        let pick = |at: u8, all: &[Fid]| all[usize::from(at) % all.len()];
        let dirs: Vec<Fid> =
            self.model.nodes.iter().filter(|(_, node)| node.dir).map(|(fid, _)| *fid).collect();
        let (d1, d2) = (pick(step.dirs.0, &dirs), pick(step.dirs.1, &dirs));
        let name_of = |at: u8| NAMES[usize::from(at) % NAMES.len()];
        let (n1, n2) = (name_of(step.names.0), name_of(step.names.1));
        let any = pick(step.file, &self.all);
        match step.what {
            0..5 => self.make(client, (d1, n1), 0o040_755),
            5..10 => self.make(client, (d1, n1), 0o100_644),
            10..13 => {
                let expected = self.model.unlink(d1, n1, false);
                self.expect(client, World::unlink_request(d1, n1, false), expected);
            }
            13..15 => {
                let expected = self.model.unlink(d1, n1, true);
                self.expect(client, World::unlink_request(d1, n1, true), expected);
            }
            15..21 => {
                let flags = RenameFlags { no_replace: step.what == 15, exchange: step.what == 16 };
                let expected = self.model.rename((d1, n1), (d2, n2), flags);
                self.expect(client, World::rename2((d1, n1), (d2, n2), flags), expected);
            }
            21..24 => {
                let expected = self.model.link(any, d1, n1);
                let request = MdtRequest::Link { fid: any, parent: d1, name: name(n1) };
                self.expect(client, request, expected);
            }
            24..26 => self.open(client, any),
            26..28 => self.close(step.file),
            28 => self.compare(client, d1),
            29 => self.world.checkpoint(),
            30 => {
                self.world.call(client, MdtRequest::GetAttr { fid: d1, want: Ibits::META });
            }
            31 => {
                self.world.call(client, MdtRequest::GetAttr { fid: any, want: Ibits::ALL });
            }
            32 => self.crash(),
            _ => self.world.cold = !self.world.cold,
        }
    }

    fn make(&mut self, client: ClientId, (parent, text): (Fid, &str), mode: u32) {
        let request = self.world.create_request(client, parent, text, mode);
        let MdtRequest::Create { fid, .. } = request else { panic!() };
        let expected = self.model.make(parent, text, fid, mode >> 12 == 4);
        self.all.push(fid);
        self.expect(client, request, expected);
    }

    fn open(&mut self, client: ClientId, fid: Fid) {
        let open_id = self.world.open_id(client);
        let expected = match self.model.nodes.get_mut(&fid) {
            None => Err(Errno::ESTALE),
            Some(node) if node.dir => Err(Errno::EISDIR),
            Some(node) => {
                node.opens += 1;
                self.open.push((client, fid, open_id));
                Ok(())
            }
        };
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let request =
            MdtRequest::Open { fid, flags, open_id, cred: Cred::default(), want: Ibits::DATA };
        self.expect(client, request, expected);
    }

    fn close(&mut self, at: u8) {
        if self.open.is_empty() {
            return;
        }
        let (client, fid, open_id) = self.open.remove(usize::from(at) % self.open.len());
        let node = self.model.node(fid);
        node.opens -= 1;
        if node.opens == 0 && node.nlink == 0 {
            self.model.nodes.remove(&fid);
        }
        self.expect(client, MdtRequest::Close { fid, open_id, report: None }, Ok(()));
    }

    fn compare(&mut self, client: ClientId, dir: Fid) {
        if self.model.dir(dir).is_err() {
            return;
        }
        let mut listed = self.world.list(client, dir, 3);
        listed.sort();
        let node = self.model.nodes[&dir].clone();
        let expected: Vec<(String, Fid)> = node.entries.into_iter().collect();
        assert_eq!(listed, expected);
        let attr = self.world.stat(client, dir);
        assert_eq!(attr.nlink, node.nlink);
        for (text, fid) in expected {
            let attr = self.world.lookup(client, dir, &text).unwrap();
            assert_eq!((attr.fid, attr.nlink), (fid, self.model.nodes[&fid].nlink));
        }
    }

    /// Everything durable, then a crash: opens are gone, and what only they kept.
    fn crash(&mut self) {
        self.world.rest();
        self.world.crash(self.world.frames.len());
        self.open.clear();
        for node in self.model.nodes.values_mut() {
            node.opens = 0;
        }
        self.model.nodes.retain(|_, node| node.nlink > 0);
        self.world.connect(A);
        self.world.connect(B);
    }

    fn finish(&mut self) {
        let dirs: Vec<Fid> = self.model.nodes.keys().copied().collect();
        for dir in dirs {
            self.compare(A, dir);
        }
        self.world.rest();
        let image = fsck::image(&self.world.frames);
        fsck::check(&image);
        let stored: Vec<Fid> = fsck::inodes(&image).into_keys().collect();
        let expected: Vec<Fid> = self.model.nodes.keys().copied().collect();
        assert_eq!(stored, expected);
    }
}

fn runner(cases: u32) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&sateen_testkit::seed().to_le_bytes());
    let cases = sateen_testkit::cases(cases);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

#[test]
fn the_name_space_is_a_tree_like_the_model() {
    let run = |steps: Vec<Step>| {
        let mut run = Run {
            world: World::with_clients(2),
            model: Model::new(),
            all: vec![ROOT],
            open: Vec::new(),
        };
        for step in &steps {
            run.step(step);
        }
        run.finish();
        Ok(())
    };
    runner(300).run(&steps(), run).unwrap_or_else(|error| panic!("{error}"));
}

//! What a request costs in the OST itself: no network, no disk, one thread.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a measurement")]

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use sateen_osd::{ObjectDone, ObjectOp, Store, StoreLimits};
use sateen_ost::Ost;
use sateen_target::{CoreConfig, Effect, Outbox, Service};
use sateen_types::{ClientId, Endpoint, Fid, ObjectId, Seq, Timestamp};
use sateen_wire::{Body, Bulk, Header, Message, OstRequest, Reply, ReplyBody, Request, StatFs};

const COUNT: u64 = 400_000;

struct World {
    ost: Ost,
    out: Outbox,
    generation: u32,
    seq: u64,
}

impl World {
    fn call(&mut self, request: Request, bulk: Bulk) -> Reply {
        self.seq += 1;
        let client = ClientId(1);
        let header = Header {
            generation: self.generation,
            seq: self.seq,
            ..Header::between(Endpoint::Client(client), Endpoint::Ost(0), client)
        };
        let now = Timestamp { mono_ns: 1, wall_ns: 1 };
        self.ost.on_message(
            now,
            Message { header, body: Body::Request(request), bulk },
            &mut self.out,
        );
        let mut answer = None;
        loop {
            let effects: Vec<Effect> = self.out.drain().collect();
            if effects.is_empty() {
                return answer.expect("an answer");
            }
            for effect in effects {
                match effect {
                    Effect::Send(Message { body: Body::Reply(reply), .. }) => answer = Some(reply),
                    Effect::Object { id, op } => {
                        let done = match op {
                            ObjectOp::Read { buffer, len, .. } => ObjectDone::Read { buffer, len },
                            ObjectOp::Write { data, .. } => ObjectDone::Written { len: data.len() },
                            ObjectOp::StatFs => ObjectDone::StatFs(StatFs {
                                bytes_total: 1 << 50,
                                bytes_free: 1 << 50,
                                bytes_avail: 1 << 50,
                                ..StatFs::default()
                            }),
                            _ => ObjectDone::Done,
                        };
                        self.ost.on_object_done(now, id, done, &mut self.out);
                    }
                    _ => {}
                }
            }
            if self.ost.store().pending_bytes() > 1 << 20 {
                let flush = self.ost.store().begin_flush().unwrap();
                self.ost.sync_before_flush();
                self.ost.store().flush_done(flush);
                self.ost.on_flushed(now, &mut self.out);
            }
        }
    }

    fn rate(&mut self, name: &str, mut request: impl FnMut(u64) -> (OstRequest, Bulk)) {
        let start = Instant::now();
        for n in 0..COUNT {
            let (request, bulk) = request(n);
            assert_eq!(self.call(Request::Ost(request), bulk).error, None);
        }
        println!("{name}: {} ns", start.elapsed().as_nanos() / u128::from(COUNT));
    }
}

fn main() {
    let config = CoreConfig { me: Endpoint::Ost(0), boot_epoch: 1, hash_key: 0 };
    let ost = Ost::new(config, Store::new(1, 0, StoreLimits::default()));
    let mut world = World { ost, out: Outbox::new(), generation: 0, seq: 0 };
    let reply = world.call(Request::Connect { features: 0 }, Bulk::None);
    let ReplyBody::Connected { generation, .. } = reply.body else { panic!("{reply:?}") };
    (world.generation, world.seq) = (generation, 0);
    let object = |n: u64| ObjectId {
        fid: Fid::new(Seq(0x2_0000_0400 + (n >> 16)), 1 + (n & 0xffff) as u32),
        stripe: 0,
    };
    let data = Bytes::from_static(&[7; 4096]);
    let write = |object| OstRequest::Write { object, layout_gen: 1, offset: 0, grant_used: 0 };
    world.rate("first write of an object", |n| (write(object(n)), Bulk::Data(data.clone())));
    world.rate("later write", |n| (write(object(n % 1000)), Bulk::Data(data.clone())));
    world.rate("read", |n| {
        let request = OstRequest::Read { object: object(n % 1000), offset: 0, len: 4096 };
        (request, Bulk::Buffer(BytesMut::new()))
    });
}

//! `lfs getstripe`: the striping of files and directories, in the field's format.
//!
//! An object of ours is named by its file's FID and its stripe number: `objid` and `group`
//! are the FID's, and the stripe number stands where a FID has its version.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use sateen_client::Striping;
use sateen_mount::{TARGETS_XATTR, TargetRow};
use sateen_types::{Component, Fid, Layout, Pattern, STRIPE_SIZE_DEFAULT, StripePolicy, seq};
use serde_json::{Value, json};

use super::{Failure, answer, fid_of, mounts_of, no_target, striping, with_bytes};

/// The magic number of a plain layout, as `-v` shows it.
const LAYOUT_MAGIC: u32 = 0x0BD1_0BD0;

#[derive(Debug, Clone, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub(super) struct GetStripeArgs {
    /// Show the stripe count.
    #[arg(short = 'c', long = "stripe-count")]
    count: bool,
    /// Show the stripe size.
    #[arg(short = 'S', long = "stripe-size")]
    size: bool,
    /// Show the index of the first OST.
    #[arg(short = 'i', long = "stripe-index", alias = "stripe-offset")]
    index: bool,
    /// Show the pattern.
    #[arg(short = 'L', long = "layout")]
    layout: bool,
    /// Show the generation of the layout.
    #[arg(short = 'g', long = "generation")]
    generation: bool,
    /// Show the FID.
    #[arg(short = 'F', long = "fid")]
    fid: bool,
    /// Show the index of the MDT that has the inode.
    #[arg(short = 'm', long = "mdt-index", visible_alias = "mdt")]
    mdt: bool,
    /// Show only files that have an object on this OST, and that object.
    #[arg(short = 'O', long = "ost", alias = "obd", value_name = "IDX|NAME", value_parser = ost_named)]
    ost: Option<u32>,
    /// Show the objects only.
    #[arg(short = 'q', long = "quiet")]
    quiet: bool,
    /// Show the FID, too.
    #[arg(short = 'v', long = "verbose")]
    verbose: bool,
    /// Go into subdirectories.
    #[arg(short = 'r', long = "recursive")]
    recursive: bool,
    /// Show a directory itself, not what is in it.
    #[arg(short = 'd', long = "directory")]
    directory: bool,
    /// Of directories, show what they say themselves: 0, 0 and -1 where they say nothing.
    #[arg(short = 'R', long = "raw")]
    raw: bool,
    /// As YAML.
    #[arg(short = 'y', long = "yaml")]
    yaml: bool,
    /// As JSON, for programs: all there is to know, of one path or more.
    #[arg(long, conflicts_with_all = ["yaml", "quiet", "verbose", "raw", "count", "size", "index"])]
    #[arg(conflicts_with_all = ["layout", "generation", "fid", "mdt"])]
    json: bool,
    /// Show symbolic links themselves, which have no striping.
    #[arg(long = "no-follow")]
    no_follow: bool,
    /// Files and directories.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// An index, or the name that an OST has in lists: `scratch-OST0003_UUID`.
fn ost_named(text: &str) -> Result<u32, String> {
    let wrong = || format!("'{text}' is neither an index, as in -O 3, nor the name of an OST");
    let Some((_, digits)) = text.rsplit_once("OST") else {
        return text.parse().map_err(|_| wrong());
    };
    u32::from_str_radix(digits.trim_end_matches("_UUID"), 16).map_err(|_| wrong())
}

/// That a file system has no such OST, which none of its files can lie on; whether it has one need
/// not be known.
fn no_such_ost(path: &Path, ost: u32) -> Option<Failure> {
    let ours = mounts_of(Some(path)).ok()?.into_iter().next()?;
    let rows: Vec<TargetRow> = answer(&ours.point, TARGETS_XATTR, "").ok()?;
    let name = format!("OST{ost:04x}");
    let is_there = rows.iter().any(|row| row.target == name);
    (!is_there).then(|| no_target(&ours.fsname, "OST", ost))
}

pub(super) fn run(args: &GetStripeArgs) -> Vec<Failure> {
    let mut seen = Seen::default();
    if let Some(ost) = args.ost {
        seen.failures = args.paths.iter().filter_map(|path| no_such_ost(path, ost)).collect();
        if !seen.failures.is_empty() {
            return seen.failures;
        }
    }
    for path in &args.paths {
        let link = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
        let followed = (link && !args.no_follow).then(|| path.canonicalize());
        match followed {
            Some(Err(error)) => {
                let what = format!("cannot follow '{}'", path.display());
                seen.failures.push(Failure::io(what, &error));
            }
            Some(Ok(target)) => visit(args, &target, 0, &mut seen),
            None => visit(args, path, 0, &mut seen),
        }
    }
    if args.json {
        println!("{:#}", Value::Array(seen.values));
    }
    seen.failures
}

/// What the visits have found.
#[derive(Default)]
struct Seen {
    values: Vec<Value>,
    failures: Vec<Failure>,
}

/// Where a path is to stand in a text. No path has it, and no text may have what a path has, which
/// need not be UTF-8.
const HERE: &str = "\0";

impl Seen {
    fn show(&mut self, path: &Path, text: &str) {
        let mut line = Vec::with_capacity(text.len());
        for (number, piece) in text.split(HERE).enumerate() {
            if number > 0 {
                line.extend_from_slice(path.as_os_str().as_encoded_bytes());
            }
            line.extend_from_slice(piece.as_bytes());
        }
        if let Err(error) = io::stdout().write_all(&line) {
            self.failures.push(Failure::io("cannot print", &error));
        }
    }
}

/// Shows a path; of a directory also what is in it, one level deep unless told otherwise.
fn visit(args: &GetStripeArgs, path: &Path, depth: u32, seen: &mut Seen) {
    let striping = match striping(path) {
        Ok(striping) => striping,
        Err(failure) => return seen.failures.push(failure),
    };
    let directory = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    let fid = match fid_of(path) {
        Ok(fid) => fid,
        Err(failure) => return seen.failures.push(failure),
    };
    match (directory, striping) {
        // Where one OST is looked for, directories are only on the way.
        (true, _) if args.ost.is_some() => {}
        (true, Striping { layout, policy, default }) if args.json => {
            let policy = policy.map(|policy| policy_json(policy, layout.as_deref()));
            let mut value = as_json(path, fid, ("policy", policy));
            if let Some(fields) = value.as_object_mut() {
                fields.insert("default".to_owned(), policy_json(default, None));
            }
            seen.values.push(value);
        }
        (false, Striping { layout, .. }) if args.json => {
            let shown = layout.filter(|layout| {
                args.ost.is_none_or(|ost| layout.objects().any(|(_, at)| at == ost))
            });
            if args.ost.is_none() || shown.is_some() {
                let layout = shown.map(|layout| layout_json(&layout));
                seen.values.push(as_json(path, fid, ("layout", layout)));
            }
        }
        (true, striping) => seen.show(path, &of_directory(args, HERE.as_ref(), fid, &striping)),
        (false, Striping { layout: Some(layout), .. }) => {
            seen.show(path, &of_file(args, HERE.as_ref(), fid, &layout));
        }
        (false, Striping { layout: None, .. }) => {
            seen.show(path, &format!("{HERE} has no stripe info\n"))
        }
    }
    if !directory || args.directory || (depth > 0 && !args.recursive) {
        return;
    }
    let failed = |error| Failure::io(format!("cannot read '{}'", path.display()), &error);
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return seen.failures.push(failed(error)),
    };
    let device = std::fs::symlink_metadata(path).map(|meta| meta.dev()).ok();
    for entry in entries {
        match entry {
            // What is mounted below is another file system's.
            Ok(entry) if entry.metadata().map(|meta| meta.dev()).ok() == device => {
                visit(args, &entry.path(), depth + 1, seen);
            }
            Ok(_) => {}
            Err(error) => seen.failures.push(failed(error)),
        }
    }
}

fn as_json(path: &Path, fid: Fid, (name, value): (&str, Option<Value>)) -> Value {
    let value = json!({
        "path": path.to_string_lossy(),
        "fid": fid.to_string(),
        "mdt_index": seq::mdt_of(fid.seq),
        name: value,
    });
    with_bytes(value, path)
}

fn policy_json(policy: StripePolicy, osts: Option<&Layout>) -> Value {
    let osts: Option<Vec<u32>> = osts.map(|osts| osts.objects().map(|(_, ost)| ost).collect());
    json!({
        "stripe_count": policy.stripe_count,
        "stripe_size": policy.stripe_size,
        "stripe_offset": policy.stripe_offset,
        "osts": osts,
    })
}

fn layout_json(layout: &Layout) -> Value {
    let component = |component: &Component| {
        let objects = component.osts.iter().zip(component.stripe_base..);
        let objects: Vec<Value> =
            objects.map(|(ost, stripe)| json!({ "ost": ost, "stripe": stripe })).collect();
        json!({
            "start": component.extent.start,
            "end": component.extent.end,
            "pattern": component.pattern.name(),
            "stripe_count": component.osts.len(),
            "stripe_size": component.stripe_size,
            "objects": objects,
        })
    };
    let components: Vec<Value> = layout.components.iter().map(component).collect();
    json!({ "generation": layout.generation, "components": components })
}

/// What can be asked for by itself: label and value.
type Fields = [(&'static str, String); 7];

impl GetStripeArgs {
    /// The fields asked for one by one, in the order of [`Fields`].
    fn chosen(&self) -> [bool; 7] {
        let own = [self.count, self.size, self.layout, self.generation, self.index];
        let [count, size, layout, generation, index] = own;
        [count, size, layout, generation, index, self.fid, self.mdt]
    }

    fn chooses(&self) -> bool {
        self.chosen().contains(&true)
    }

    fn chooses_one(&self) -> bool {
        self.chosen().iter().filter(|chosen| **chosen).count() == 1
    }
}

// Text is written into strings here, which does not fail: that is what `let _` passes over.

/// Fields as lines with labels; one that was asked for alone, as its value.
fn fields(args: &GetStripeArgs, prefix: &str, end: &str, fields: Fields) -> String {
    let mut out = String::new();
    let chosen = fields.into_iter().zip(args.chosen()).filter(|(_, chosen)| *chosen);
    for (at, ((label, value), _)) in chosen.enumerate() {
        if args.chooses_one() {
            let _ = writeln!(out, "{value}");
        } else {
            let _ = write!(out, "{}{prefix}{label:<15}{value}", if at > 0 { end } else { "" });
        }
    }
    if !args.chooses_one() {
        out.push('\n');
    }
    out
}

fn of_directory(
    args: &GetStripeArgs,
    path: &Path,
    fid: Fid,
    Striping { layout: osts, policy, default }: &Striping,
) -> String {
    let nothing = StripePolicy { stripe_count: 0, stripe_size: 0, stripe_offset: None };
    let own = policy.unwrap_or(nothing);
    let or = |own: i64, default: i64| if own == 0 && !args.raw { default } else { own };
    let count = or(own.stripe_count.into(), default.stripe_count.into());
    let size = or(default.stripe_size.into(), STRIPE_SIZE_DEFAULT.into());
    let size = or(own.stripe_size.into(), size);
    let offset = own.stripe_offset.map_or_else(|| "-1".to_owned(), |index| index.to_string());
    let pattern = Pattern::Raid0.name();
    let values = [
        ("stripe_count:", count.to_string()),
        ("stripe_size:", size.to_string()),
        ("pattern:", pattern.to_owned()),
        ("layout_gen:", "0".to_owned()),
        ("stripe_offset:", offset.clone()),
        ("fid:", fid.to_string()),
        ("mdt_index:", seq::mdt_of(fid.seq).to_string()),
    ];
    if args.chooses() {
        return fields(args, "", " ", values);
    }
    let header = if args.directory || args.yaml || args.quiet {
        String::new()
    } else {
        format!("{}\n", path.display())
    };
    let osts = named(args, osts.as_deref());
    if args.yaml {
        return format!(
            "lmm_stripe_count:  {count}\nlmm_stripe_size:   {size}\nlmm_pattern:       {pattern}\n\
             lmm_stripe_offset: {offset}\n{osts}"
        );
    }
    format!(
        "{header}stripe_count:  {count} stripe_size:   {size} pattern:       {pattern} \
         stripe_offset: {offset}\n{osts}{}",
        if args.directory { "" } else { "\n" }
    )
}

/// The OSTs of a directory's new files, which have no objects there yet.
fn named(args: &GetStripeArgs, osts: Option<&Layout>) -> String {
    let Some(osts) = osts else { return String::new() };
    let header = "\tobdidx\t\t objid\t\t objid\t\t group\n";
    let mut out = if args.yaml { "lmm_objects:\n" } else { header }.to_owned();
    for (_, ost) in osts.objects() {
        let _ = if args.yaml {
            writeln!(out, "      - l_ost_idx: {ost}")
        } else {
            writeln!(out, "\t{ost:6}\t{0:>14}\t{0:>13}\t{0:>14}", "N/A")
        };
    }
    out
}

fn of_file(args: &GetStripeArgs, path: &Path, fid: Fid, layout: &Layout) -> String {
    let Some(first) = layout.components.first() else {
        return format!("{} has no stripe info\n", path.display());
    };
    if args.ost.is_some_and(|ost| !first.osts.contains(&ost)) {
        return String::new();
    }
    let count = first.osts.len();
    let offset = first.osts.first().map_or_else(|| "-1".to_owned(), u32::to_string);
    if args.chooses() {
        let values = [
            ("stripe_count:", count.to_string()),
            ("stripe_size:", first.stripe_size.to_string()),
            ("pattern:", first.pattern.name().to_owned()),
            ("layout_gen:", layout.generation.to_string()),
            ("stripe_offset:", offset),
            ("fid:", fid.to_string()),
            ("mdt_index:", seq::mdt_of(fid.seq).to_string()),
        ];
        let text = fields(args, "lmm_", "\n", values);
        let alone = args.chooses_one() || args.yaml;
        return if alone { text } else { format!("{}\n{text}", path.display()) };
    }
    let mut out = String::new();
    if !args.yaml && (!args.quiet || args.ost.is_some()) {
        let _ = writeln!(out, "{}", path.display());
    }
    if !args.quiet {
        if args.verbose {
            let _ = writeln!(out, "lmm_magic:         {LAYOUT_MAGIC:#010X}");
            let _ = writeln!(out, "lmm_seq:           {:#x}", fid.seq.0);
            let _ = writeln!(out, "lmm_object_id:     {:#x}", fid.oid);
            let _ = writeln!(out, "lmm_fid:           {fid}");
        }
        let _ = writeln!(out, "lmm_stripe_count:  {count}");
        let _ = writeln!(out, "lmm_stripe_size:   {}", first.stripe_size);
        let _ = writeln!(out, "lmm_pattern:       {}", first.pattern.name());
        let _ = writeln!(out, "lmm_layout_gen:    {}", layout.generation);
        let _ = writeln!(out, "lmm_stripe_offset: {offset}");
    }
    objects(args, &mut out, fid, first);
    out
}

fn objects(args: &GetStripeArgs, out: &mut String, fid: Fid, component: &Component) {
    let (seq, oid) = (fid.seq.0, fid.oid);
    if args.yaml {
        let _ = writeln!(out, "lmm_objects:");
    } else {
        let _ = writeln!(out, "\tobdidx\t\t objid\t\t objid\t\t group");
    }
    let shown = |ost: u32| args.ost.is_none_or(|only| only == ost);
    for (ost, stripe) in component.osts.iter().zip(component.stripe_base..) {
        if !shown(*ost) {
            continue;
        }
        let _ = if args.yaml {
            writeln!(
                out,
                "      - l_ost_idx: {ost}\n        l_fid:     {seq:#x}:{oid:#x}:{stripe:#x}"
            )
        } else {
            writeln!(out, "\t{ost:6}\t{oid:14}\t{oid:#13x}\t{seq:#14x}")
        };
    }
    if !args.yaml {
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_types::Seq;

    fn args() -> GetStripeArgs {
        GetStripeArgs::default()
    }

    fn file(args: &GetStripeArgs) -> String {
        let layout = Layout::raid0(4 << 20, vec![1, 0]).unwrap();
        of_file(args, Path::new("/mnt/f"), Fid::new(Seq(0x2_8000_0401), 2), &layout)
    }

    #[test]
    fn files_look_as_in_the_field() {
        let text = "/mnt/f\nlmm_stripe_count:  2\nlmm_stripe_size:   4194304\n\
            lmm_pattern:       raid0\nlmm_layout_gen:    1\nlmm_stripe_offset: 1\n\
            \tobdidx\t\t objid\t\t objid\t\t group\n\
            \t     1\t             2\t          0x2\t   0x280000401\n\
            \t     0\t             2\t          0x2\t   0x280000401\n\n";
        assert_eq!(file(&args()), text);
        assert_eq!(file(&GetStripeArgs { count: true, ..args() }), "2\n");
        assert_eq!(file(&GetStripeArgs { size: true, ..args() }), "4194304\n");
        assert_eq!(file(&GetStripeArgs { index: true, ..args() }), "1\n");
        let two = file(&GetStripeArgs { count: true, index: true, ..args() });
        assert_eq!(two, "/mnt/f\nlmm_stripe_count:  2\nlmm_stripe_offset: 1\n");
        let quiet = file(&GetStripeArgs { quiet: true, ..args() });
        assert!(quiet.starts_with("\tobdidx") && quiet.lines().count() == 4, "{quiet}");
        let yaml = file(&GetStripeArgs { yaml: true, ..args() });
        assert!(yaml.contains("lmm_objects:\n      - l_ost_idx: 1\n        l_fid:     0x28"));
        let field = |args| file(&args);
        assert_eq!(field(GetStripeArgs { layout: true, ..args() }), "raid0\n");
        assert_eq!(field(GetStripeArgs { generation: true, ..args() }), "1\n");
        assert_eq!(field(GetStripeArgs { fid: true, ..args() }), "[0x280000401:0x2:0x0]\n");
        let only = field(GetStripeArgs { ost: Some(0), quiet: true, ..args() });
        assert_eq!(only.lines().count(), 4, "{only}");
        assert_eq!(field(GetStripeArgs { ost: Some(7), ..args() }), "");
        for (text, index) in [("3", 3), ("scratch-OST001a_UUID", 26), ("OST0003", 3)] {
            assert_eq!(ost_named(text), Ok(index));
        }
        assert!(ost_named("scratch-OSTx").is_err() && ost_named("x").is_err());
        let verbose = file(&GetStripeArgs { verbose: true, ..args() });
        assert!(verbose.contains("lmm_magic:         0x0BD10BD0\nlmm_seq:           0x280000401"));
    }

    #[test]
    fn directories_look_as_in_the_field() {
        let policy = StripePolicy { stripe_count: 1, stripe_size: 4 << 20, stripe_offset: None };
        let line =
            "stripe_count:  1 stripe_size:   4194304 pattern:       raid0 stripe_offset: -1\n";
        let path = Path::new("/mnt");
        let default = StripePolicy::DEFAULT;
        let show = |args: &GetStripeArgs, policy| {
            of_directory(args, path, Fid::ROOT, &Striping { layout: None, policy, default })
        };
        let alone = show(&GetStripeArgs { directory: true, ..args() }, Some(policy));
        assert_eq!(alone, line);
        assert_eq!(show(&args(), Some(policy)), format!("/mnt\n{line}\n"));
        let count = GetStripeArgs { count: true, ..args() };
        assert_eq!(show(&count, Some(policy)), "1\n");
        assert_eq!(show(&count, None), "-1\n");
        let own = Striping { layout: None, policy: None, default: policy };
        let shown = of_directory(&count, path, Fid::ROOT, &own);
        assert_eq!(shown, "1\n", "what the file system says, where a directory says nothing");
        let size = GetStripeArgs { size: true, ..args() };
        assert_eq!(of_directory(&size, path, Fid::ROOT, &own), "4194304\n");
        let two = GetStripeArgs { count: true, size: true, ..args() };
        assert_eq!(show(&two, None), "stripe_count:  -1 stripe_size:   1048576\n");
        let raw = GetStripeArgs { raw: true, directory: true, ..args() };
        let nothing = "stripe_count:  0 stripe_size:   0 pattern:       raid0 stripe_offset: -1\n";
        assert_eq!(show(&raw, None), nothing);
        assert_eq!(show(&raw, Some(policy)), line);
        let yaml = GetStripeArgs { yaml: true, directory: true, ..args() };
        assert!(show(&yaml, Some(policy)).starts_with("lmm_stripe_count:  1\nlmm_stripe_size:"));
        // With its OSTs named one by one.
        let policy = StripePolicy { stripe_count: 2, stripe_offset: Some(3), ..policy };
        let layout = Some(Layout::raid0(4 << 20, vec![3, 0]).unwrap().into());
        let both = Striping { layout, policy: Some(policy), default };
        let list = |args: &GetStripeArgs| of_directory(args, path, Fid::ROOT, &both);
        let line = "stripe_count:  2 stripe_size:   4194304 pattern:       raid0 stripe_offset: 3\n\
            \tobdidx\t\t objid\t\t objid\t\t group\n\
            \t     3\t           N/A\t          N/A\t           N/A\n\
            \t     0\t           N/A\t          N/A\t           N/A\n";
        assert_eq!(list(&GetStripeArgs { directory: true, ..args() }), line);
        assert_eq!(list(&args()), format!("/mnt\n{line}\n"));
        assert_eq!(list(&count), "2\n");
        assert!(
            list(&yaml).ends_with("lmm_objects:\n      - l_ost_idx: 3\n      - l_ost_idx: 0\n")
        );
    }
}

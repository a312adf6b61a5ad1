//! Parts whose load is another program.

use super::mounted::{MEMORY, Mounted};
use super::{Outcome, Round};
use std::fmt::Write;
use std::process::Command;
use testkit::needs::{run, tool};
use testkit::oracle::text;

/// The parts of a file, one for each engine, and their size in bytes.
const PART: usize = 8 << 20;
/// Engines and whether their access is direct. fio's own mmap engine confuses the parts of a file
/// on any file system (3.33), so maps are left to `mixed`.
const ENGINES: [(&str, u32); 6] = [
    ("libaio", 1),
    ("io_uring", 1),
    ("libaio", 0),
    ("io_uring", 0),
    ("psync", 0),
    ("psync", 1),
];

/// fio writes the same files with several engines, each in its own part of each file, and verifies
/// them.
pub fn fio(mut round: Round) -> Outcome {
    let mounted = Mounted::new(&mut round, 2 << 30);
    let seconds = round.time.as_secs().max(2);
    let mut job = format!(
        "[global]\ndirectory={}\nverify=crc32c\nverify_fatal=1\nverify_backlog=64\nverify_state_save=0\ntime_based=1\n\
         runtime={seconds}\nrw=randwrite\nallow_file_create=0\nfallocate=none\n",
        text(&mounted.dir),
    );
    for file in ["shared0", "shared1"] {
        for (nth, (engine, direct)) in ENGINES.into_iter().enumerate() {
            let block = *round.rng.pick(&[4096, 4096, 8192, 65536]);
            let depth = if engine == "psync" { 1 } else { 8 };
            let _ = write!(
                job,
                "[{engine}-{direct}-{file}]\nfilename={file}\nioengine={engine}\ndirect={direct}\n\
                 iodepth={depth}\nbs={block}\noffset={}\nsize={PART}\nfsync={}\nrandseed={}\n",
                nth * PART,
                round.rng.below(400),
                round.rng.next_u64() >> 1,
            );
        }
        let file = std::fs::File::create(mounted.dir.join(file)).expect("creates");
        file.set_len((PART * ENGINES.len()) as u64)
            .expect("its size");
    }
    let path = round.dir.join("job.fio");
    std::fs::write(&path, job).expect("a job");
    let (code, output) = run("fio", &["--output-format=json", text(&path)]);
    assert_eq!(code, 0, "fio: {}", tail(&output));
    let operations = numbers_after(&output, "\"total_ios\" : ");
    Outcome {
        operations,
        memory: mounted.finish("after fio"),
        budget: MEMORY,
        note: format!("{} jobs on 2 files, verified", 2 * ENGINES.len()),
    }
}

/// Runs stress-ng's stressors of the classes filesystem and io, one after another.
pub fn stress_ng(mut round: Round) -> Outcome {
    let mounted = Mounted::new(&mut round, 2 << 30);
    let listed = run("stress-ng", &["--class", "filesystem?"]).1;
    let names = listed.split_once(':').map_or("", |(_, names)| names);
    // These mount other file systems, make devices, or do not use the given directory.
    let others = [
        "bind-mount",
        "binderfs",
        "loop",
        "quota",
        "ramfs",
        "sysfs",
        "procfs",
        "swap",
        "umount",
    ];
    let names: Vec<&str> = names
        .split_whitespace()
        .filter(|name| !others.contains(name))
        .collect();
    assert!(names.len() > 5, "stress-ng lists no stressors: {listed}");
    let chosen = round.time.as_secs().max(2) as usize;
    let mut rng = round.rng.clone();
    let (mut ran, mut refused) = (Vec::new(), Vec::new());
    for _ in 0..chosen.div_ceil(2) {
        let name = *rng.pick(&names);
        let stressor = format!("--{name}");
        let args = [
            &stressor,
            "2",
            "-t",
            "2s",
            "--verify",
            "--temp-path",
            text(&mounted.dir),
        ];
        let (code, output) = run("stress-ng", &args);
        // 0: passed; 3 and 4: it cannot run here.
        match code {
            0 => ran.push(name),
            3 | 4 => refused.push(name),
            _ => panic!("stress-ng --{name}: exit {code}\n{}", tail(&output)),
        }
    }
    Outcome {
        operations: ran.len() as u64,
        memory: mounted.finish("after stress-ng"),
        budget: MEMORY,
        note: format!(
            "{}; not possible here: {}",
            ran.join(" "),
            refused.join(" ")
        ),
    }
}

/// Runs dbench with several clients.
pub fn dbench(mut round: Round) -> Outcome {
    let mounted = Mounted::new(&mut round, 2 << 30);
    let seconds = round.time.as_secs().max(2).to_string();
    let result = Command::new(tool("dbench").expect("dbench"))
        .args(["-D", text(&mounted.dir), "-t", &seconds])
        .arg(round.threads.to_string())
        .output()
        .expect("dbench runs");
    let output = String::from_utf8_lossy(&result.stdout).into_owned();
    assert!(result.status.success(), "dbench: {}", tail(&output));
    let failed: Vec<&str> = output.lines().filter(|l| l.contains("failed")).collect();
    assert!(failed.is_empty(), "dbench: {}", failed.join("\n"));
    let throughput = output.lines().find(|line| line.starts_with("Throughput"));
    Outcome {
        operations: column_sum(&output),
        memory: mounted.finish("after dbench"),
        budget: MEMORY,
        note: throughput.unwrap_or("no throughput").to_owned(),
    }
}

/// The counts in dbench's table of operations.
fn column_sum(output: &str) -> u64 {
    let table = output
        .lines()
        .skip_while(|line| !line.contains("Operation"))
        .skip(2);
    table
        .take_while(|line| !line.trim().is_empty())
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum()
}

/// The sum of the numbers behind `key`.
fn numbers_after(text: &str, key: &str) -> u64 {
    text.split(key)
        .skip(1)
        .filter_map(|rest| {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse::<u64>().ok()
        })
        .sum()
}

/// The end of a program's output.
fn tail(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

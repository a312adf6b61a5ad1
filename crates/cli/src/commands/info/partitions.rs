//! The partitions of a disk or disk image.

use crate::human;
use crate::output::Output;
use serde_json::{Value, json};
use sluicefs::{Partition, PartitionTable};
use std::ffi::OsStr;
use std::io::{self, Write};

/// The partition table of a device; `None` if it has none, or is no file.
pub fn of(device: &OsStr) -> Option<PartitionTable> {
    sluicefs::partition_table(device).ok()?
}

/// The name that opens a partition.
fn name(device: &OsStr, partition: &Partition) -> String {
    format!("{}#{}", device.display(), partition.number)
}

fn bytes(partition: &Partition) -> u64 {
    partition.range.end - partition.range.start
}

/// Prints the table, with what each partition begins with.
pub fn print(device: &OsStr, table: &PartitionTable, out: &mut Output) -> io::Result<()> {
    let count = human::count(table.partitions.len() as u64);
    writeln!(
        out,
        "{}: {} with {count} partitions",
        device.display(),
        table.format
    )?;
    writeln!(
        out,
        "{:>10} {:>10}  {:<20} {:<16} contents",
        "start", "size", "name", "label"
    )?;
    for partition in &table.partitions {
        let name = name(device, partition);
        let contents = sluicefs::contents(&name).unwrap_or("nothing known");
        writeln!(
            out,
            "{:>10} {:>10}  {name:<20} {:<16} {contents} (type {})",
            human::bytes(partition.range.start),
            human::bytes(bytes(partition)),
            partition.label,
            partition.kind,
        )?;
    }
    Ok(())
}

/// The table as a JSON object.
pub fn describe(device: &OsStr, table: &PartitionTable) -> Value {
    let partitions = table.partitions.iter().map(|partition| {
        let name = name(device, partition);
        json!({
            "number": partition.number,
            "contents": sluicefs::contents(&name),
            "device": name,
            "offset": partition.range.start,
            "bytes": bytes(partition),
            "type": partition.kind,
            "label": partition.label,
        })
    });
    json!({
        "device": device.to_string_lossy(),
        "partition_table": table.format.to_string().to_lowercase(),
        "partitions": partitions.collect::<Vec<_>>(),
    })
}

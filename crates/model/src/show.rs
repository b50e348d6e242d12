//! Predictions as text: rates first, then how they come about, then what they do not know.

use crate::predict::{Bandwidth, Limit, Prediction};
use crate::units::{Rate, Size, digits, operations};

impl Prediction {
    /// As text.
    pub fn text(&self) -> String {
        let hardware = &self.hardware;
        let (servers, clients) = (&hardware.servers, &hardware.clients);
        let mut lines = vec![
            format!("{}, profile {}", hardware.name, hardware.profile),
            format!("  {}", self.profile),
            format!(
                "  {} servers of {} OSTs; {} client nodes of {} processes, {} a call, {}",
                servers.count,
                servers.osts,
                clients.nodes,
                clients.processes,
                binary(clients.transfer),
                clients.api.name()
            ),
            String::new(),
            format!(
                "  {:<9} {:>12} {:>12} {:>12}  {}",
                "bandwidth", "total", "per node", "per process", "bound by"
            ),
        ];
        lines.extend(self.bandwidth.iter().map(bandwidth_line));
        lines.extend(self.bandwidth.iter().flat_map(limit_lines));
        lines.extend(self.metadata_lines());
        lines.extend(list("Beyond what the profile was held against", &self.outside));
        let missing: Vec<String> = self
            .missing
            .iter()
            .map(|one| format!("{}: {}\n      measure: {}", one.input, one.because, one.measure))
            .collect();
        lines.extend(list("Missing inputs that the answer depends on", &missing));
        lines.join("\n") + "\n"
    }

    fn metadata_lines(&self) -> Vec<String> {
        if self.metadata.is_empty() {
            return Vec::new();
        }
        let mut lines = vec![
            String::new(),
            format!(
                "  {:<9} {:>12} {:>12} {:>12}  {}",
                "metadata", "total/s", "MDTs' limit", "per process", "bound by"
            ),
        ];
        lines.extend(self.metadata.iter().map(|one| {
            format!(
                "  {:<9} {:>12} {:>12} {:>12}  {}",
                one.operation.name(),
                operations(one.rate),
                operations(one.ceiling),
                digits(one.per_process),
                one.bound_by
            )
        }));
        lines
    }
}

/// Transfer sizes are powers of two, and read better so.
fn binary(size: Size) -> String {
    let mib = size.0 / crate::units::MIB;
    let kib = size.0 / crate::units::KIB;
    if mib >= 1.0 && mib.fract() == 0.0 {
        format!("{mib} MiB")
    } else if kib >= 1.0 && kib.fract() == 0.0 {
        format!("{kib} KiB")
    } else {
        size.to_string()
    }
}

fn bandwidth_line(one: &Bandwidth) -> String {
    let near = one.near.map_or(String::new(), |other| format!(", {} near", other.name()));
    format!(
        "  {:<9} {:>12} {:>12} {:>12}  {}{near}",
        one.direction.name(),
        Rate(one.rate),
        Rate(one.per_node),
        Rate(one.per_process),
        one.bound_by.name()
    )
}

fn limit_lines(one: &Bandwidth) -> Vec<String> {
    let mut lines = vec![String::new(), format!("  limits of {}", one.direction.name())];
    lines.extend(one.limits.iter().map(limit_line));
    lines
}

fn limit_line(limit: &Limit) -> String {
    let reached = if limit.share < 1.0 {
        format!("{} % of it: {}", digits(100.0 * limit.share), Rate(limit.reached()))
    } else {
        String::new()
    };
    let line = format!(
        "    {:<18} {:>10}  {:<42} {reached}",
        limit.resource.name(),
        Rate(limit.hardware),
        limit.how
    );
    line.trim_end().to_string()
}

/// A heading and what stands under it; nothing where there is nothing.
pub(crate) fn list(heading: &str, items: &[String]) -> Vec<String> {
    if items.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), format!("  {heading}")];
    lines.extend(items.iter().map(|item| format!("    {item}")));
    lines
}

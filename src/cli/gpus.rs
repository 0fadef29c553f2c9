//! `drigs gpus`.

use clap::Args;

use crate::cli::{
    Session,
    failure::Failure,
    screen::{Cell, Screen, Table},
    watch::Watch,
};
use crate::rpc::api::{Api, GpuView};

#[derive(Args, Clone, Debug)]
pub struct GpusArgs {
    /// Only those of this worker
    #[arg(short, long, value_name = "NAME")]
    worker: Option<String>,
    /// Only those that nobody holds
    #[arg(long)]
    free: bool,
    #[command(flatten)]
    watch: Watch,
}

pub async fn run(args: GpusArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let wanted = |gpu: &GpuView| {
        args.worker.as_ref().is_none_or(|worker| gpu.worker == *worker)
            && (!args.free || (gpu.held_by.is_empty() && gpu.state == "HEALTHY"))
    };
    args.watch
        .run(session, async |session: &mut Session<'_, _>| {
            let mut gpus = session.api.gpus(session.consistency).await?;
            gpus.retain(wanted);
            session.screen.show(&gpus, |screen| table(&gpus, screen).draw(screen))
        })
        .await
}

fn table(gpus: &[GpuView], screen: &Screen<'_>) -> Table {
    let narrow = ["~WORKER", "GPU", "~MODEL", ">FREE", ">MEMORY", "STATE", "~HELD BY"];
    let wide = [">CC", "UUID", "REASON"];
    let more = if screen.is_wide() { &wide[..] } else { &[] };
    let mut table = Table::new(narrow.into_iter().chain(more.iter().copied()));
    for gpu in gpus {
        let mut cells: Vec<Cell> = vec![
            (&gpu.worker).into(),
            (&gpu.device_id).into(),
            (&gpu.model_name).into(),
            gpu.available_memory_bytes.into(),
            gpu.total_memory_bytes.into(),
            Cell::health(&gpu.state, "HEALTHY"),
            gpu.held_by.join(",").into(),
        ];
        if screen.is_wide() {
            let capability = gpu.compute_capability.map(|it| it.to_string());
            cells.extend([
                Cell::from(capability.unwrap_or_default()),
                (&gpu.uuid).into(),
                gpu.reason.as_deref().unwrap_or_default().into(),
            ]);
        }
        table.row(cells);
    }
    table
}

//! Mistakes in files, and scripts.

use super::*;

#[test]
fn mistakes_in_files_name_their_place() {
    file(
        "name: x\nresources:\n  gpuz: 2",
        expect!["job.yaml:3:3: unknown key `gpuz`; did you mean `gpus`?"],
    );
    file("nmae: x", expect!["job.yaml:1:1: unknown key `nmae`; did you mean `name`?"]);
    file("gpus: 2", expect!["job.yaml:1:1: unknown key `gpus` here; it belongs under `resources`"]);
    file(
        "entrypoint: ls",
        expect!["job.yaml:1:1: unknown key `entrypoint` here; it belongs under `execution`"],
    );
    file(
        "resources: {queue: x}",
        expect!["job.yaml:1:13: unknown key `queue` here; it belongs at the top"],
    );
    file(
        "colour: red",
        expect![
            "job.yaml:1:1: unknown key `colour`; known here: name, queue, priority, resources, execution, distribution, runtime, checkpoint, nodes, gpus_per_node, gpu, gpu_sharing, labels, time_limit, retry, stop, array, depends_on, begin, hold, on_disconnect, lost_after"
        ],
    );
    file(
        "resources: {gpus: two}",
        expect!["job.yaml:1:19: `two` is not a whole number of 0 or more"],
    );
    file(
        "resources: {gpus: -1}",
        expect!["job.yaml:1:19: `-1` is not a whole number of 0 or more"],
    );
    file(
        "resources: {gpus: 1.5}",
        expect!["job.yaml:1:19: `1.5` is not a whole number of 0 or more"],
    );
    file(
        "resources: {memory: 5 apples}",
        expect![
            "job.yaml:1:21: `5 apples` is not an amount of memory (such as 512M, 16GB or 1.5T)"
        ],
    );
    file(
        "resources: {memory: 1G, memory_bytes: 5}",
        expect!["job.yaml:1:25: `memory_bytes` says again what `memory` says; keep one"],
    );
    file("resources: 5", expect!["job.yaml:1:12: a number where a table of keys belongs"]);
    file("name: [a]", expect!["job.yaml:1:7: a list where a single value belongs"]);
    file("name: {a: b}", expect!["job.yaml:1:7: a table of keys where a single value belongs"]);
    file("gpu_sharing: maybe", expect!["job.yaml:1:14: a text where true or false belongs"]);
    file(
        "execution: {entrypoint: ls, env: [A]}",
        expect!["job.yaml:1:34: a list where a table of names and values belongs"],
    );
    file(
        "execution: {entrypoint: ls, env: {A: }}",
        expect![[r#"job.yaml:1:36: `A` has no value; write "" for an empty one"#]],
    );
    file(
        "execution: {entrypoint: ls, env: {A: \"1\\n2\"}}",
        expect!["job.yaml:1:34: the value of `A` has a line break in it"],
    );
    file(
        "execution: {entrypoint: ls, env: {A: \"\\0\"}}",
        expect!["job.yaml:1:34: the value of `A` has a NUL byte in it"],
    );
    file(
        "execution: {entrypoint: \"ls 'x\"}",
        expect!["job.yaml:1:25: a quotation mark is never closed"],
    );
    file("execution: {entrypoint: []}", expect!["job.yaml:1:25: is empty"]);
    file("execution: {entrypoint: ''}", expect!["job.yaml:1:25: is empty"]);
    file("execution: {entrypoint: ls}\nname: ''", expect!["job.yaml:2:7: the job's name is empty"]);
    file(
        "execution: {entrypoint: ls}\narray: 0-1000000",
        expect!["job.yaml:2:8: has 1000001 tasks; at most 1000000"],
    );
    file(
        "execution: {entrypoint: ls}\ndepends_on:\n - 12\n - afterok:x",
        expect!["job.yaml:4:4: `x` in `afterok:x` is not a job id (a number such as 12)"],
    );
    file(
        "execution: {entrypoint: ls, backend: slurm}",
        expect!["job.yaml:1:38: `slurm` is not a backend: native, docker or distributed"],
    );
    file(
        "execution: {entrypoint: ls, backend: docker}",
        expect!["job.yaml:1:38: the docker backend needs an image, but none is named"],
    );
    file(
        "execution: {entrypoint: ls}\nretry: {max: 2, on: [never]}",
        expect![
            "job.yaml:2:22: `never` is not a cause to retry: failure, signal, oom, timeout, start-failed or exit:CODE"
        ],
    );
    file(
        "distribution: {master_port: 70000}",
        expect!["job.yaml:1:29: `70000` is not a port (1 to 65535)"],
    );
    file(
        "name: x",
        expect![
            "job.yaml: nothing to run: give the command after `--`, a script, or a file with `execution.entrypoint`"
        ],
    );
    file("", expect!["job.yaml: is empty; a job needs at least `execution.entrypoint`"]);
    file("- a", expect!["job.yaml:1:1: a list where a table of keys belongs"]);
    file("name: x\nname: y", expect!["job.yaml:2:1: duplicate mapping key: name"]);
    file("name: 'x", expect!["job.yaml:1:7: unclosed quote"]);
    file("a: b: c", expect!["job.yaml:1:5: mapping values are not allowed in this context"]);
    file(&"x".repeat(2 << 20), expect!["job.yaml: is 2M in size; at most 1M is read"]);
}

#[test]
fn scripts() {
    script(
        "#!/bin/bash\n#DRIGS -G 2 -t 1h\n#DRIGS --mem 4G -e HF_HOME\n\necho hi\n#DRIGS -c 9\n",
        expect![[r##"
            command = ["/bin/bash","-c","#!/bin/bash\n#DRIGS -G 2 -t 1h\n#DRIGS --mem 4G -e HF_HOME\n\necho hi\n#DRIGS -c 9\n","job.sh","a b","--lr=1"]
            env.HF_HOME = "/data/hf"
            name = "job.sh"
            request.gpus.count = 2
            request.memory = 4294967296
            time_limit = "3600s"
        "##]],
    );
    script(
        "echo no interpreter\n",
        expect![[r#"
        command = ["/bin/sh","-c","echo no interpreter\n","job.sh","a b","--lr=1"]
        name = "job.sh"
    "#]],
    );
    script(
        "#!/usr/bin/env python3\n#DRIGS -J ada # why\nprint(1)\n",
        expect![[r##"
        command = ["/bin/sh","-c","f=$(mktemp) && printf %s \"$1\" >\"$f\" && exec 3<\"$f\" && rm -f \"$f\" && shift && exec \"$@\" || exit 126","job.sh","#!/usr/bin/env python3\n#DRIGS -J ada # why\nprint(1)\n","/usr/bin/env","python3","/dev/fd/3","a b","--lr=1"]
        name = "ada"
    "##]],
    );
    script(
        "#!/usr/bin/env -S bash -eu\nls",
        expect![[r##"
        command = ["/usr/bin/env","-S bash -eu","-c","#!/usr/bin/env -S bash -eu\nls","job.sh","a b","--lr=1"]
        name = "job.sh"
    "##]],
    );
    script(
        "#!/bin/sh\n#SBATCH --job-name=old -p gpu\n#SBATCH --gres=gpu:a100:2\n#SBATCH -c4 --mem=8G --time=1-00:00\n\
         #SBATCH --array=0-9%3\n#SBATCH --signal=B:USR1@60 --export=ALL,A=1 -N 2-4\n\
         #SBATCH --output=%j.out\n#SBATCH -n 4 --mail-type ALL --foo=bar --baz 3 --requeue -H\nls\n",
        expect![[r##"
            array = {"indices":"0-9","max_running":3}
            command = ["/bin/sh","-c","#!/bin/sh\n#SBATCH --job-name=old -p gpu\n#SBATCH --gres=gpu:a100:2\n#SBATCH -c4 --mem=8G --time=1-00:00\n#SBATCH --array=0-9%3\n#SBATCH --signal=B:USR1@60 --export=ALL,A=1 -N 2-4\n#SBATCH --output=%j.out\n#SBATCH -n 4 --mail-type ALL --foo=bar --baz 3 --requeue -H\nls\n","job.sh","a b","--lr=1"]
            env.A = "1"
            held = true
            layout = {"nodes":2}
            name = "old"
            queue = "gpu"
            request.cpus = 4
            request.gpus.count = 2
            request.gpus.model = "a100"
            request.memory = 8589934592
            stop.grace = "60s"
            stop.signal = 10
            time_limit = "86400s"
            ! bin/job.sh:6: `--export=ALL` is ignored: jobs inherit only what is named (`#DRIGS --export NAME,…`)
            ! bin/job.sh:7: `--output` is ignored: `drigs logs` shows what the job writes
            ! bin/job.sh:8: `-n` is ignored: the script runs once on each node
            ! bin/job.sh:8: `--mail-type` is ignored: no mail is sent
            ! bin/job.sh:8: `--foo=bar` is not supported, and ignored
            ! bin/job.sh:8: `--baz` is not supported, and ignored
            ! bin/job.sh:8: `--requeue` is ignored: an attempt that the cluster lost is always tried again
        "##]],
    );
    script(
        "#!/bin/sh\n\n#DRIGS --gpuz 2\nls",
        expect![
            "bin/job.sh:3: unexpected argument '--gpuz' found; a similar argument exists: '--gpus'"
        ],
    );
    script(
        "#!/bin/sh\n#DRIGS --mem 3x\nls",
        expect![
            "bin/job.sh:2: --mem: `3x` is not an amount of memory (such as 512M, 16GB or 1.5T)"
        ],
    );
    script(
        "#!/bin/sh\n#DRIGS -N 2 -G 3\nls",
        expect![
            "bin/job.sh:2: --gpus: 3 GPUs do not divide over 2 nodes; say how many each gives (gpus per node)"
        ],
    );
    script(
        "#!/bin/sh\n#DRIGS -J 'x\nls",
        expect!["bin/job.sh:2: a quotation mark is never closed"],
    );
    script("#!/bin/sh\n#DRIGS ls\nls", expect!["bin/job.sh:2: unexpected argument 'ls' found"]);
    script(
        "#!/bin/sh\n#SBATCH -t soon\nls",
        expect![
            "bin/job.sh:2: --time: `soon` is not a length of time (such as 90s, 30m, 4h, 2d, 1:30:00 or 1-12:00)"
        ],
    );
    script(
        &format!("#!/bin/sh\n{}", "x".repeat(200_000)),
        expect!["bin/job.sh: is 195.3K in size; a script of at most 128K can travel with its job"],
    );
}

#[test]
fn flags_lie_over_directives() {
    let below =
        read_script("job.sh", "#!/bin/sh\n#DRIGS -G 1 -t 1h -e A=1 -e B=1\nls", &[], &environment);
    let words = ["-t", "2h", "-e", "A=2"].map(String::from);
    let above = SpecFlags::from_directive(&words, &Place::new("line")).unwrap();
    let above = above.into_draft(&environment, Place::new).unwrap();
    let spec = above.over(below.unwrap().draft).finish(&around());
    expect![[r##"
        command = ["/bin/sh","-c","#!/bin/sh\n#DRIGS -G 1 -t 1h -e A=1 -e B=1\nls","job.sh"]
        env.A = "2"
        env.B = "1"
        name = "job.sh"
        request.gpus.count = 1
        time_limit = "7200s"
    "##]]
    .assert_eq(&shown(spec));
}

// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.benchmarks.Tool;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Pattern;

/// fio, which writes from and reads into one buffer per thread.
///
/// Threading: one thread.
public final class Fio implements FileLimit {
    private final Path program;
    private final Map<String, Integer> writers = new HashMap<>();

    private Fio(Path program) {
        this.program = program;
    }

    /// Where it is, or empty after one visible line.
    public static Optional<Fio> find() {
        return Tool.find("fio", "apt-get install fio, to see the ratio").map(Fio::new);
    }

    @Override
    public String title() {
        return "fio";
    }

    @Override
    public Work run(Turn turn) throws IOException, InterruptedException {
        String name = turn.write() ? turn.name() : divideAmongReaders(turn);
        if (turn.write()) {
            writers.put(name, turn.threads());
        }
        String json =
                Tool.run(
                        Duration.ofMinutes(5),
                        List.of(
                                program.toString(),
                                "--name=" + name,
                                "--directory=" + turn.joined(),
                                "--rw=" + (turn.write() ? "write" : "read"),
                                "--bs=" + turn.bytesPerCall(),
                                "--filesize=" + turn.bytes(),
                                "--nrfiles=" + turn.files() / turn.threads(),
                                "--numjobs=" + turn.threads(),
                                "--openfiles=1",
                                "--file_service_type=sequential",
                                "--create_on_open=1",
                                "--fallocate=none",
                                "--ioengine=psync",
                                "--thread",
                                "--invalidate=" + (turn.direct() ? 1 : 0),
                                "--group_reporting",
                                "--direct=" + (turn.direct() ? 1 : 0),
                                "--output-format=json"));
        var rate =
                Pattern.compile(
                                "\""
                                        + (turn.write() ? "write" : "read")
                                        + "\"\\s*:\\s*\\{.*?\"bw_bytes\"\\s*:\\s*(\\d+)",
                                Pattern.DOTALL)
                        .matcher(json);
        if (!rate.find()) {
            throw new IOException("fio printed no bandwidth: " + json);
        }
        double percent = number(json, "usr_cpu") + number(json, "sys_cpu");
        double micros = number(json, "job_runtime") * 1000 * percent / 100;
        return turn.took(turn.bytes() * turn.files() / Double.parseDouble(rate.group(1)), micros);
    }

    /// A thread of fio reads the files that have its number in their name. So those that were
    /// written by more or fewer threads are renamed; answers with what their names begin.
    private String divideAmongReaders(Turn turn) throws IOException {
        int before = writers.getOrDefault(turn.name(), turn.threads());
        if (before == turn.threads()) {
            return turn.name();
        }
        String name = turn.name() + ".read";
        for (int i = 0; i < turn.files(); i++) {
            Files.move(
                    file(turn, turn.name(), i, turn.files() / before),
                    file(turn, name, i, turn.files() / turn.threads()));
        }
        return name;
    }

    private static Path file(Turn turn, String name, int i, int perThread) {
        int thread = i / perThread;
        return turn.folders()
                .get(thread % turn.folders().size())
                .resolve(name + "." + thread + "." + i % perThread);
    }

    private static double number(String json, String name) throws IOException {
        var found = Pattern.compile("\"" + name + "\"\\s*:\\s*([0-9.]+)").matcher(json);
        if (!found.find()) {
            throw new IOException("fio printed no " + name + ": " + json);
        }
        return Double.parseDouble(found.group(1));
    }
}

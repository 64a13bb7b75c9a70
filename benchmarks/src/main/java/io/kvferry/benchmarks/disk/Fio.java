// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.benchmarks.Tool;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.regex.Pattern;

/// fio, which writes from and reads into one buffer per thread.
public final class Fio implements FileLimit {
    private final Path program;

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
        String json =
                Tool.run(
                        Duration.ofMinutes(5),
                        List.of(
                                program.toString(),
                                "--name=" + turn.name(),
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

    private static double number(String json, String name) throws IOException {
        var found = Pattern.compile("\"" + name + "\"\\s*:\\s*([0-9.]+)").matcher(json);
        if (!found.find()) {
            throw new IOException("fio printed no " + name + ": " + json);
        }
        return Double.parseDouble(found.group(1));
    }
}

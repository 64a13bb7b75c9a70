// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.rdma;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/// The GPUs of this host, as `nvidia-smi` lists them.
final class Gpus {
    private static final long PROBE_SECONDS = 30;
    private static final List<String> PROBE =
            List.of("nvidia-smi", "--query-gpu=index,pci.bus_id", "--format=csv,noheader");

    private Gpus() {}

    /// Of this machine; none where there is no `nvidia-smi` or it fails.
    static List<RnicPlan.Gpu> ofThisMachine(RdmaHost host) {
        Path output = null;
        try {
            output = Files.createTempFile("kvferry-gpus", ".csv");
            var process =
                    new ProcessBuilder(PROBE)
                            .redirectOutput(output.toFile())
                            .redirectError(ProcessBuilder.Redirect.DISCARD)
                            .start();
            if (!process.waitFor(PROBE_SECONDS, TimeUnit.SECONDS)) {
                process.destroyForcibly();
                return List.of();
            }
            return process.exitValue() == 0
                    ? parse(Files.readString(output, StandardCharsets.UTF_8), host)
                    : List.of();
        } catch (IOException _) {
            return List.of();
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            return List.of();
        } finally {
            delete(output);
        }
    }

    private static void delete(@Nullable Path file) {
        try {
            if (file != null) {
                Files.deleteIfExists(file);
            }
        } catch (IOException _) {
            // an empty file in the folder for such
        }
    }

    /// Lines of `index, bus id`.
    ///
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] for another line
    static List<RnicPlan.Gpu> parse(String csv, RdmaHost host) {
        var gpus = new ArrayList<RnicPlan.Gpu>();
        for (String line : csv.lines().filter(text -> !text.isBlank()).toList()) {
            String[] fields = line.split(",", -1);
            try {
                int index = Integer.parseInt(fields[0].strip());
                var pci = PciAddress.of(fields.length == 2 ? fields[1] : "");
                gpus.add(new RnicPlan.Gpu(index, pci, pci.map(host::numaOf).orElse(-1)));
            } catch (NumberFormatException e) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG, "not a line 'index, bus id' of a GPU: " + line, e);
            }
        }
        return gpus;
    }
}

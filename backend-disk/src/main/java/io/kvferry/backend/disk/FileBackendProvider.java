// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk;

import io.kvferry.backend.disk.file.FileBackend;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackendProvider;

/// Moves bytes between host memory and files; what NIXL's POSIX plugin does, with every byte count
/// checked.
public final class FileBackendProvider implements TransferBackendProvider {
    /// Its name in configurations.
    public static final String NAME = "FILE";

    private static final OptionSchema OPTIONS =
            OptionSchema.of(
                    Option.of(
                                    "direct",
                                    Option.Type.BOOLEAN,
                                    "open files with O_DIRECT; everything must then be aligned to 4096")
                            .withDefault("false"),
                    Option.of("threads", Option.Type.INTEGER, "transfers at a time")
                            .withDefault("4")
                            .inRange(1, 256),
                    Option.of("queue", Option.Type.INTEGER, "transfers that may wait")
                            .withDefault("1024")
                            .inRange(1, 1_000_000));

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public String description() {
        return "host memory to and from ranges of files of this machine";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OPTIONS;
    }

    @Override
    public BackendCapabilities capabilities(OptionValues options) {
        return FileBackend.capabilities(options.bool("direct"));
    }

    @Override
    public TransferBackend open(BackendContext context) {
        OptionValues options = context.options();
        return new FileBackend(
                context.self().agent(),
                options.bool("direct"),
                (int) options.integer("threads"),
                (int) options.integer("queue"));
    }
}

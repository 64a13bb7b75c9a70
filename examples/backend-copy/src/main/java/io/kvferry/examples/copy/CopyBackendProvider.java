// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.copy;

import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendCapabilities.Feature;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.BackendCapabilities.Route.Scope;
import io.kvferry.spi.transfer.BackendCapabilities.Threading;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackendProvider;

import java.util.Set;

/// The transfer backend `COPY`.
public final class CopyBackendProvider implements TransferBackendProvider {
    @Override
    public String name() {
        return "COPY";
    }

    @Override
    public String description() {
        return "Copies between registered host memory of one process";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OptionSchema.of(
                Option.of("queue", Option.Type.INTEGER, "most transfers under way")
                        .withDefault("1024")
                        .inRange(1, 1_000_000));
    }

    @Override
    public BackendCapabilities capabilities(OptionValues options) {
        return new BackendCapabilities(
                Set.of(
                        new Route(Operation.READ, MemoryKind.HOST, MemoryKind.HOST, Scope.LOOPBACK),
                        new Route(
                                Operation.WRITE, MemoryKind.HOST, MemoryKind.HOST, Scope.LOOPBACK)),
                Set.of(Feature.CANCEL, Feature.APPLIED_ON_COMPLETION),
                Threading.CONFINED,
                1 << 20,
                Long.MAX_VALUE,
                1);
    }

    @Override
    public TransferBackend open(BackendContext context) {
        return new CopyBackend(context, capabilities(context.options()));
    }
}

// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackendProvider;

import java.util.EnumSet;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;

/// The reference transfer backend: host memory to host memory within one JVM.
public final class MemoryBackendProvider implements TransferBackendProvider {
    /// Its name in configurations.
    public static final String NAME = "MEMORY";

    private static final OptionSchema OPTIONS =
            OptionSchema.of(
                    Option.of(
                                    "fabric",
                                    Option.Type.STRING,
                                    "name of the network; agents on the same one can meet")
                            .withDefault("default"),
                    Option.choice(
                            "threading",
                            "who drives it: its own thread, or the agent",
                            "concurrent",
                            "confined"),
                    Option.of(
                                    "queue",
                                    Option.Type.INTEGER,
                                    "transfers accepted before BACKPRESSURE")
                            .withDefault("256")
                            .inRange(1, 1 << 20),
                    Option.of(
                                    "alignment",
                                    Option.Type.INTEGER,
                                    "demanded of addresses and lengths; a power of two")
                            .withDefault("1")
                            .inRange(1, 4096),
                    Option.of("max_bytes", Option.Type.BYTES, "most bytes in one transfer")
                            .withDefault("1GiB")
                            .inRange(1, 1e15),
                    Option.of(
                                    "without",
                                    Option.Type.STRING_LIST,
                                    "features not to claim, e.g. [\"NOTIFY\"]")
                            .withDefault(""),
                    Option.of(
                                    "with",
                                    Option.Type.STRING_LIST,
                                    "features to claim beside the usual ones: CHECKSUM, NEEDS_TARGET_PROGRESS, SELF_MANAGED_METADATA")
                            .withDefault(""));

    /// Damages a byte of what is moved next on a fabric, for tests of what notices it.
    public static void damageNext(String fabric) {
        MemoryFabric.damage(fabric);
    }

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public String description() {
        return "host memory to host memory within one JVM (reference, for tests)";
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
        var routes = new HashSet<Route>();
        for (var operation : Operation.values()) {
            for (var scope : Route.Scope.values()) {
                routes.add(new Route(operation, MemoryKind.HOST, MemoryKind.HOST, scope));
            }
        }
        Set<BackendCapabilities.Feature> features =
                EnumSet.of(
                        BackendCapabilities.Feature.NOTIFY,
                        BackendCapabilities.Feature.CANCEL,
                        BackendCapabilities.Feature.PER_DESCRIPTOR_RESULTS,
                        BackendCapabilities.Feature.APPLIED_ON_COMPLETION);
        options.strings("without")
                .forEach(name -> features.remove(BackendCapabilities.Feature.valueOf(name)));
        options.strings("with")
                .forEach(name -> features.add(BackendCapabilities.Feature.valueOf(name)));
        return new BackendCapabilities(
                routes,
                features,
                BackendCapabilities.Threading.valueOf(
                        options.string("threading").toUpperCase(Locale.ROOT)),
                1 << 20,
                options.bytes("max_bytes"),
                (int) options.integer("alignment"));
    }

    @Override
    public TransferBackend open(BackendContext context) {
        return MemoryBackend.open(context, capabilities(context.options()));
    }
}

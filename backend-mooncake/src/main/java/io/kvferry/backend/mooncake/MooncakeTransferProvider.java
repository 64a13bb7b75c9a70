// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.backend.mooncake.nativeengine.NativeConfig;
import io.kvferry.backend.mooncake.nativeengine.NativeTransferEngine;
import io.kvferry.backend.mooncake.rdma.RdmaEnvironment;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.Availability;
import io.kvferry.spi.Finding;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendCapabilities.Feature;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.BackendCapabilities.Route.Scope;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.toolkit.crossmemory.CrossMemory;
import io.kvferry.toolkit.doctor.Machine;
import io.kvferry.toolkit.files.FileTrouble;
import io.kvferry.toolkit.recovery.OpeningParts;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/// The transfer backend `MOONCAKE`: host memory to host memory over Mooncake's transfer engine.
public final class MooncakeTransferProvider implements TransferBackendProvider {
    /// Most ranges in one transfer; a list of them takes 24 bytes each.
    private static final int MOST_DESCRIPTORS = 1 << 20;

    @Override
    public String name() {
        return "MOONCAKE";
    }

    @Override
    public String description() {
        return "Mooncake transfer engine: TCP in pure Java, copies between processes on one host, RDMA through Mooncake's library";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return MooncakeOptions.SCHEMA;
    }

    @Override
    public Availability availability() {
        return new Availability.Available(
                NativeConfig.libraryFromEnvironment()
                        .map(path ->
                                "pure Java, %s; native library named by %s: %s"
                                        .formatted(
                                                CrossMemory.availability(
                                                        "cross_memory_ptracer=true"),
                                                NativeConfig.LIBRARY_VARIABLE,
                                                path))
                        .orElseGet(() ->
                                "pure Java over TCP, %s; RDMA needs Mooncake's library: %s"
                                        .formatted(
                                                CrossMemory.availability(
                                                        "cross_memory_ptracer=true"),
                                                NativeTransferEngine.HOW_TO_GET)));
    }

    @Override
    public List<Finding> diagnose() {
        var peers =
                "tests against real peers: interop/run installs it into a virtual environment of its own";
        return List.of(
                Machine.library(
                        "InfiniBand verbs",
                        "libibverbs.so.1",
                        "RDMA through Mooncake's library: apt install libibverbs1 ibverbs-providers"),
                RdmaEnvironment.diagnose(),
                Machine.library(
                        "Mooncake engine (C)",
                        NativeConfig.LIBRARY_VARIABLE,
                        "libtransfer_engine.so",
                        "option engine=native of MOONCAKE: build Mooncake with shared libraries and name the file in this variable"),
                sharedMemory(),
                CrossMemoryCheck.here(),
                Machine.program("gcc", "tests of the native Mooncake engine: apt install gcc"),
                Machine.pythonModule("mooncake", peers),
                Machine.pythonModule("msgspec", peers),
                Machine.pythonModule("zmq", peers));
    }

    private static Finding sharedMemory() {
        var what = "/dev/shm";
        var folder = Path.of(what);
        try {
            if (Files.isWritable(folder)) {
                long free = Files.getFileStore(folder).getUsableSpace() >> 20;
                return Finding.ok(what, free + " MiB free");
            }
            return Finding.optional(
                    what,
                    "not there or not writable",
                    "copies between processes on one host: mount a tmpfs there");
        } catch (IOException e) {
            return Finding.optional(what, FileTrouble.describe("cannot be looked at", e), "");
        }
    }

    @Override
    public BackendCapabilities capabilities(OptionValues options) {
        Set<Route> routes = new HashSet<>();
        for (Operation operation : Operation.values()) {
            for (Scope scope : Scope.values()) {
                routes.add(new Route(operation, MemoryKind.HOST, MemoryKind.HOST, scope));
            }
        }
        return new BackendCapabilities(
                routes,
                features(options),
                BackendCapabilities.Threading.CONCURRENT,
                MOST_DESCRIPTORS,
                Long.MAX_VALUE,
                1);
    }

    private static Set<Feature> features(OptionValues options) {
        Set<Feature> features = EnumSet.of(Feature.NOTIFY, Feature.CANCEL);
        if (MooncakeOptions.isNative(options)) {
            if (options.string("protocol").equals("rdma")) {
                features.add(Feature.APPLIED_ON_COMPLETION);
            }
            return features;
        }
        features.add(Feature.APPLIED_ON_COMPLETION);
        if (options.bool("checksum") && !options.bool("shared_memory")) {
            // A copy within one machine's memory is not summed.
            features.add(Feature.CHECKSUM);
        }
        return features;
    }

    @Override
    public TransferBackend open(BackendContext context) {
        try (var parts = new OpeningParts()) {
            var engine = parts.add(MooncakeOptions.start(context.options()), TransferEngine::close);
            var backend =
                    new MooncakeTransferBackend(
                            context,
                            capabilities(context.options()),
                            engine,
                            MooncakeOptions.access(context.options()));
            parts.keep();
            return backend;
        }
    }
}

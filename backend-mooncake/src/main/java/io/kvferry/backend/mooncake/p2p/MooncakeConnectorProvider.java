// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import io.kvferry.backend.mooncake.nativeengine.NativeConfig;
import io.kvferry.backend.mooncake.nativeengine.NativeTransferEngine;
import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.plane.DataPlane;
import io.kvferry.backend.mooncake.p2p.plane.HostBackends;
import io.kvferry.backend.mooncake.p2p.plane.OwnEngine;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.toolkit.recovery.OpeningParts;
import io.kvferry.toolkit.secret.FleetSecret;

import java.time.Duration;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Optional;

/// vLLM's MooncakeConnector: prefill/decode disaggregation over the Mooncake transfer engine.
public final class MooncakeConnectorProvider implements KvConnectorProvider {
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(30);

    @Override
    public String name() {
        return "MooncakeConnector";
    }

    @Override
    public String description() {
        return "prefill/decode disaggregation over the Mooncake transfer engine, wire-compatible with vLLM 0.33.0";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return MooncakeSettings.SCHEMA;
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        var features =
                EnumSet.of(
                        Feature.SEVERAL_GROUPS,
                        Feature.WINDOW_GROUPS,
                        Feature.PIPELINE_STAGES,
                        Feature.HANDSHAKE,
                        Feature.SIGNALS,
                        Feature.PROVIDES_MEMORY);
        if (config.role().consumes()) {
            features.add(Feature.ASYNC_LOAD);
        }
        if (config.role().produces()) {
            features.add(Feature.HOLD);
        }
        // The layout that vLLM's connector requires for all models but MLA, which no engine here
        // has. Peers copy blocks unconverted, and older ones compare only lengths.
        return new ConnectorCapabilities(features, Optional.of(KvLayout.LBHNC));
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return new MooncakeScheduler(context);
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        DataPlane plane;
        Optional<Rehearsal> rehearsal;
        try (var parts = new OpeningParts()) {
            plane = parts.add(plane(context), DataPlane::close);
            rehearsal = Rehearsal.begin(context, MooncakeConnectorProvider::plane);
            parts.keep();
        }
        return new MooncakeWorker(context, plane, rehearsal);
    }

    static DataPlane plane(WorkerContext context) {
        var settings = MooncakeSettings.from(context.options());
        if (settings.transferBackends().isEmpty()) {
            return new OwnEngine(engine(context), settings.crossMemory());
        }
        if (!settings.engine().equals("java")) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "engine="
                            + settings.engine()
                            + " and transfer_backends exclude each other: either moves the bytes");
        }
        // The engine's incarnation differs from those before it; an agent's has to be greater.
        var self = PeerId.startingNow(context.config().engineId() + "/" + context.rank().rank());
        return HostBackends.open(
                context.host(), settings.transferBackends(), self, context.config().ip());
    }

    private static TransferEngine engine(WorkerContext context) {
        var settings = MooncakeSettings.from(context.options());
        var host = context.config().ip();
        if (settings.engine().equals("java")) {
            if (settings.protocol().equals("tcp")) {
                var engine = new HashMap<String, String>();
                engine.put("host", host);
                engine.put("bind-host", settings.bindHost().orElse(host));
                engine.put("min-port", String.valueOf(settings.minPort()));
                engine.put("max-port", String.valueOf(settings.maxPort()));
                engine.put("cross-memory", String.valueOf(settings.crossMemory()));
                engine.put("cross-memory-ptracer", String.valueOf(settings.crossMemoryPtracer()));
                settings.secretFile().ifPresent(file -> engine.put("secret-file", file.toString()));
                return JavaTransferEngine.start(EngineConfig.from(engine));
            }
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    "mooncake_protocol="
                            + settings.protocol()
                            + " needs engine=native; the Java engine carries tcp");
        }
        if (settings.secret().isPresent()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "engine=native lets everybody in; with a secret ("
                            + FleetSecret.SETTING
                            + ") use engine=java");
        }
        var library =
                settings.library()
                        .or(NativeConfig::libraryFromEnvironment)
                        .orElseThrow(() ->
                                new KvFerryException(
                                        ErrorCode.UNAVAILABLE,
                                        "engine=native needs libtransfer_engine.so, which is not configured. "
                                                + NativeTransferEngine.HOW_TO_GET));
        return NativeTransferEngine.start(
                new NativeConfig(
                        library,
                        EngineConfig.P2P,
                        host,
                        host,
                        settings.protocol(),
                        settings.device(),
                        1024,
                        CLOSE_LIMIT));
    }
}

// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.P2pSettings.SendType;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Finding;
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
import io.kvferry.toolkit.net.HostNames;

import java.io.IOException;
import java.net.ServerSocket;
import java.util.EnumSet;
import java.util.List;
import java.util.Optional;

/// vLLM's P2pNcclConnector: prefill/decode disaggregation from rank to rank, pushed or pulled.
public final class P2pNcclConnectorProvider implements KvConnectorProvider {
    private final KnownPrompts prompts = new KnownPrompts();

    @Override
    public String name() {
        return "P2pNcclConnector";
    }

    @Override
    public String description() {
        return "prefill/decode disaggregation from rank to rank: prefill pushes KV while it computes, or decode pulls it";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return P2pSettings.SCHEMA;
    }

    @Override
    public List<Finding> diagnose() {
        return PlaneChoice.findings();
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        var features =
                EnumSet.of(
                        Feature.SEVERAL_GROUPS,
                        Feature.WINDOW_GROUPS,
                        Feature.HANDSHAKE,
                        Feature.SIGNALS);
        boolean vllm = P2pSettings.isVllm(config);
        if (vllm) { // one tensor for each layer, of all blocks of a prompt
            features.remove(Feature.SEVERAL_GROUPS);
            features.remove(Feature.WINDOW_GROUPS);
        }
        if (config.role().consumes()) {
            features.add(Feature.ASYNC_LOAD);
        }
        if (config.role().produces()) {
            boolean gets = P2pSettings.sendType(config) == SendType.GET;
            if (gets || !vllm) {
                features.add(Feature.HOLD);
            }
            if (!gets) {
                features.add(Feature.LAYERWISE_SAVE);
            }
        }
        return new ConnectorCapabilities(features, Optional.empty());
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return new P2pScheduler(context, prompts.of(context));
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        var settings = P2pSettings.from(context.options());
        var host = context.config().ip();
        var bindHost = settings.bindHost().orElse(host);
        int rank = context.rank().rank();
        requireFree(bindHost, settings.port(context.config(), rank, context.engine().worldSize()));
        if (settings.vllm()) {
            VllmWorker.check(context, settings);
            return new VllmWorker(context, PlaneChoice.openLanes(settings, rank));
        }
        return new P2pWorker(context, PlaneChoice.open(settings, rank, host, bindHost));
    }

    /// The side channel listens once the regions are registered, when the model is loaded, which
    /// may take minutes: a port that is taken shows before.
    private static void requireFree(String host, int port) {
        var address = HostNames.SYSTEM.socketAddress(host, port);
        if (port == 0 || address.isUnresolved()) {
            return;
        }
        try (var probe = new ServerSocket()) {
            probe.bind(address);
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    "P2pNcclConnector cannot listen on "
                            + host
                            + ":"
                            + port
                            + " ("
                            + e.getMessage()
                            + "); set kv_port to a free one",
                    e);
        }
    }
}

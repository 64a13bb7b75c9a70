// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import io.kvferry.backend.mooncake.rdma.RdmaEnvironment;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.command.CommandProvider;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// `kvferry run-with-owner -- COMMAND...`: an engine with the owner of its store beside it, as
/// vLLM's `run_vllm_with_mooncake_owner.sh` does it. Unlike that it notices an owner that dies.
/// With `MOONCAKE_PROTOCOL` rdma or efa the command is told which devices to use.
public final class RunWithOwnerCommand implements CommandProvider {
    private static final String READY = "owner_ready_timeout";
    private static final String LOG = "owner_log";

    @Override
    public String name() {
        return "run-with-owner";
    }

    @Override
    public String description() {
        return "Runs a command (after --) with a store's owner beside it, which is started anew"
                + " when it dies.";
    }

    @Override
    public Arguments arguments() {
        return new Arguments("COMMAND", 1, Integer.MAX_VALUE, "the command that is run, after --");
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        var options = new ArrayList<>(OwnerOptions.all());
        options.add(
                Option.of(READY, Option.Type.DURATION, "longest time until the owner is ready")
                        .withDefault("120s")
                        .inRange(0.1, 86_400));
        options.add(
                Option.of(LOG, Option.Type.PATH, "log of the owner, written anew at each start")
                        .withDefault("kvferry_owner.log"));
        return OptionSchema.of(options.toArray(Option[]::new));
    }

    private static List<String> owner(OptionValues options, Optional<Path> plugins, int port) {
        var arguments = new ArrayList<>(List.of("owner", "--json", "--stop-with-stdin"));
        arguments.addAll(OwnerOptions.arguments(options, port));
        plugins.ifPresent(
                folder -> arguments.addAll(List.of("--plugin-folder", folder.toString())));
        return OwnerProcess.thisProgram(arguments);
    }

    @Override
    public int run(Context context) throws InterruptedException {
        var options = context.options();
        int first = Math.toIntExact(options.integer(OwnerOptions.PORT));
        Map<String, String> rdma = RdmaEnvironment.forThisMachine(System.getenv());
        rdma.forEach((name, value) -> context.err().println(name + "=" + value));
        var both =
                new RunWithOwner(
                        port -> owner(options, context.pluginFolder(), port == 0 ? first : port),
                        options.path(LOG),
                        options.duration(READY),
                        options.optionalString("master")
                                .map(text ->
                                        RemoteStoreConfig.MASTER_AT
                                                + RemoteStoreConfig.withoutScheme(text)),
                        rdma,
                        context.err());
        var hook = new Thread(both::close, "kvferry-run-with-owner-stop");
        Runtime.getRuntime().addShutdownHook(hook);
        try {
            return both.run(context.arguments());
        } finally {
            both.close();
            removeHook(hook);
        }
    }

    private static void removeHook(Thread hook) {
        try {
            Runtime.getRuntime().removeShutdownHook(hook);
        } catch (IllegalStateException _) {
            // A signal is ending the process: the hook does its work.
        }
    }
}

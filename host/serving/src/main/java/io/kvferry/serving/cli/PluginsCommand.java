// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.multiconnector.discovery.FoundPlugin;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.multiconnector.discovery.SkippedPlugin;
import io.kvferry.serving.AssembledEngine;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.Availability;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.Plugin;
import io.kvferry.spi.command.CommandProvider;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.transfer.TransferBackendProvider;

import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

import java.io.PrintWriter;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;

/// `kvferry plugins`: what can be selected, whether it works here, with which options.
@Command(
        name = "plugins",
        mixinStandardHelpOptions = true,
        description =
                "Lists connectors, transfer backends, model runners and commands; with a NAME, that plugin's options.")
final class PluginsCommand implements Callable<Integer> {
    @Parameters(
            arity = "0..1",
            paramLabel = "NAME",
            description = "Show this plugin only, with its options.")
    Optional<String> name = Optional.empty();

    @Option(
            names = {"--plugin-folder", "--plugin-dir"},
            paramLabel = "FOLDER",
            description = "More plugins: one sub-folder of jars each.")
    Optional<Path> pluginFolder = Optional.empty();

    @Option(names = "--json", description = "Print JSON, options included.")
    boolean json;

    @Spec
    @SuppressWarnings("NullAway.Init") // set by picocli
    CommandSpec spec;

    @Override
    public Integer call() {
        try (var catalog = AssembledEngine.catalog(pluginFolder)) {
            var root = Json.object();
            kinds().forEach((title, kind) -> root.set(title, list(catalog, kind)));
            if (name.isPresent()
                    && root.properties().stream().allMatch(kind -> kind.getValue().isEmpty())) {
                throw new KvFerryException(
                        ErrorCode.NOT_FOUND, unknown(name.get(), names(catalog)));
            }
            var out = spec.commandLine().getOut();
            if (json) {
                out.println(Json.pretty(root));
            } else {
                print(out, root);
            }
            out.flush();
            return hasConflicts(catalog) ? ExitCode.USAGE : ExitCode.OK;
        }
    }

    private static String unknown(String name, List<String> known) {
        return "no plugin is called "
                + name
                + OptionSchema.nearest(name, known)
                        .map(near -> "; did you mean " + near + "?")
                        .orElse("; kvferry plugins lists all");
    }

    private static List<String> names(PluginCatalog catalog) {
        return kinds().values().stream()
                .flatMap(kind -> catalog.of(kind).all().stream())
                .map(FoundPlugin::name)
                .distinct()
                .toList();
    }

    static Map<String, Class<? extends Plugin>> kinds() {
        var kinds = new LinkedHashMap<String, Class<? extends Plugin>>();
        kinds.put("kv_connectors", KvConnectorProvider.class);
        kinds.put("ec_connectors", EcConnectorProvider.class);
        kinds.put("transfer_backends", TransferBackendProvider.class);
        kinds.put("model_runners", ModelRunnerProvider.class);
        kinds.put("commands", CommandProvider.class);
        return kinds;
    }

    private boolean hasConflicts(PluginCatalog catalog) {
        boolean any = false;
        var err = spec.commandLine().getErr();
        var printed = new HashSet<SkippedPlugin>(); // a jar that cannot be opened is in every set
        for (var kind : kinds().values()) {
            var set = catalog.of(kind);
            set.skipped().stream()
                    .filter(printed::add)
                    .forEach(skipped -> err.println("skipped: " + skipped));
            set.conflicts().forEach(err::println);
            any |= !set.conflicts().isEmpty();
        }
        err.flush();
        return any;
    }

    private ArrayNode list(PluginCatalog catalog, Class<? extends Plugin> kind) {
        var array = Json.object().putArray("list");
        for (var found : catalog.of(kind).all()) {
            if (name.isEmpty() || matches(found, name.get())) {
                array.add(describe(found));
            }
        }
        return array;
    }

    private static boolean matches(FoundPlugin<?> found, String name) {
        return found.name().equals(name) || found.provider().aliases().contains(name);
    }

    private static ObjectNode describe(FoundPlugin<?> found) {
        var plugin = found.provider();
        var node =
                Json.object()
                        .put("name", found.name())
                        .put("description", plugin.description())
                        .put("spi_versions", plugin.spiVersions().toString())
                        .put("where", found.where());
        plugin.aliases().forEach(node.putArray("aliases")::add);
        switch (plugin.availability()) {
            case Availability.Available(String detail) ->
                    node.put("available", true).put("detail", detail);
            case Availability.Unavailable(String reason, String remedy) ->
                    node.put("available", false).put("detail", reason).put("remedy", remedy);
        }
        var options = node.putArray("options");
        plugin.options().options().forEach(option -> options.add(describe(option)));
        return node;
    }

    private static ObjectNode describe(io.kvferry.spi.config.Option option) {
        var node =
                Json.object()
                        .put("name", option.name())
                        .put("type", option.type().name().toLowerCase(Locale.ROOT))
                        .put("required", option.required())
                        .put("description", option.description());
        option.defaultText()
                .filter(_ -> !option.secret())
                .ifPresent(text -> node.put("default", text));
        if (!option.choices().isEmpty()) {
            option.choices().forEach(node.putArray("choices")::add);
        }
        if (!option.aliases().isEmpty()) {
            option.aliases().forEach(node.putArray("aliases")::add);
        }
        if (Double.isFinite(option.minimum())) {
            node.put("minimum", option.minimum());
        }
        if (Double.isFinite(option.maximum())) {
            node.put("maximum", option.maximum());
        }
        return node;
    }

    private void print(PrintWriter out, ObjectNode root) {
        root.properties()
                .forEach(kind -> {
                    if (!kind.getValue().isEmpty()) {
                        out.println(kind.getKey().replace('_', ' '));
                        kind.getValue().forEach(plugin -> printPlugin(out, plugin));
                    }
                });
    }

    private void printPlugin(PrintWriter out, JsonNode plugin) {
        boolean works = plugin.path("available").booleanValue();
        var description = (works ? "" : "(not here) ") + plugin.path("description").asString();
        out.printf("  %-28s %s%n", plugin.path("name").asString(), description);
        if (!works) {
            var remedy = plugin.path("detail").asString() + ". " + plugin.path("remedy").asString();
            out.printf("  %-28s %s%n", "", remedy);
        }
        if (name.isPresent()) {
            out.printf("  %-28s in %s%n", "", plugin.path("where").asString());
            plugin.path("options").forEach(option -> printOption(out, option));
        }
    }

    private static void printOption(PrintWriter out, JsonNode option) {
        var text = new StringBuilder(option.path("type").asString());
        if (option.path("required").booleanValue()) {
            text.append(", required");
        }
        if (option.has("default")) {
            text.append(", default ").append(option.path("default").asString());
        }
        if (option.has("choices")) {
            text.append(", one of ").append(option.path("choices"));
        }
        out.printf(
                "    %-32s %s (%s)%n",
                option.path("name").asString(), option.path("description").asString(), text);
    }
}

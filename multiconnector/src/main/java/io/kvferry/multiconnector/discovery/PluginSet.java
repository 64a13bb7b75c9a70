// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.discovery;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.Plugin;
import io.kvferry.spi.config.OptionSchema;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;

/// All plugins of one kind, by name and alias.
///
/// Two providers that claim one name leave no safe choice: the set can still be listed, but
/// [#require] refuses until one of the jars is gone.
///
/// Threading: immutable.
public final class PluginSet<P extends Plugin> {
    private static final String SUFFIX = "Connector";

    private final Class<P> kind;
    private final List<FoundPlugin<P>> found;
    private final List<SkippedPlugin> skipped;
    private final List<String> conflicts;
    private final Map<String, FoundPlugin<P>> byName = new LinkedHashMap<>();
    private final String searched;

    PluginSet(
            Class<P> kind,
            List<FoundPlugin<P>> found,
            List<SkippedPlugin> skipped,
            List<String> conflicts,
            String searched) {
        this.kind = kind;
        this.found = List.copyOf(found);
        this.skipped = List.copyOf(skipped);
        this.searched = searched;
        var clashes = new ArrayList<>(conflicts);
        for (var plugin : found) {
            claim(plugin, plugin.name(), clashes);
            plugin.provider().aliases().forEach(alias -> claim(plugin, alias, clashes));
        }
        this.conflicts = List.copyOf(clashes);
    }

    private void claim(FoundPlugin<P> plugin, String name, List<String> clashes) {
        var first = byName.putIfAbsent(name, plugin);
        if (first != null && !first.equals(plugin)) {
            clashes.add(
                    "two plugins are called \""
                            + name
                            + "\": "
                            + describe(first)
                            + " and "
                            + describe(plugin)
                            + ". Remove one of the two");
        }
    }

    private String describe(FoundPlugin<P> plugin) {
        return plugin.provider().getClass().getName() + " in " + plugin.where();
    }

    /// Every usable plugin, in the order found: the class path first, then the sub-folders by name.
    public List<FoundPlugin<P>> all() {
        return found;
    }

    /// Plugins that were found and cannot be used.
    public List<SkippedPlugin> skipped() {
        return skipped;
    }

    /// One sentence for every name that two providers claim.
    public List<String> conflicts() {
        return conflicts;
    }

    /// The plugin of that name or alias, if there is one.
    public Optional<FoundPlugin<P>> find(String name) {
        return Optional.ofNullable(byName.get(name));
    }

    /// The plugin of that name or alias.
    ///
    /// @param where what asks for it, for the message, e.g. `kv_connector`
    /// @throws KvFerryException PLUGIN_CONFLICT when any two plugins of this kind share a name,
    ///   NOT_FOUND with the names that exist, where they lie, what was skipped and where was
    ///   searched
    public P require(String where, String name) {
        if (!conflicts.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.PLUGIN_CONFLICT, where + ": " + String.join("; ", conflicts));
        }
        var plugin = byName.get(name);
        if (plugin == null) {
            throw new KvFerryException(ErrorCode.NOT_FOUND, unknown(where, name));
        }
        return plugin.provider();
    }

    private String unknown(String where, String name) {
        var text = new StringBuilder(where + ": no " + label(kind) + " is called \"" + name + "\"");
        text.append(nearest(name).map(near -> "; did you mean \"" + near + "\"?").orElse("."));
        if (!skipped.isEmpty()) {
            text.append(" Skipped: ")
                    .append(
                            skipped.stream()
                                    .map(SkippedPlugin::toString)
                                    .collect(Collectors.joining("; ")))
                    .append(".");
        }
        text.append(" Found: ");
        text.append(
                found.isEmpty()
                        ? "none"
                        : found.stream()
                                .map(this::listed)
                                .sorted()
                                .collect(Collectors.joining(", ")));
        return text.append(". Searched: ").append(searched).toString();
    }

    /// The closest existing name. The usual suffix is ignored, so that a missing plugin is not
    /// reported as a misspelling of another one, and `Disk` suffices for `DiskConnector`.
    private Optional<String> nearest(String name) {
        var names = new TreeMap<String, String>();
        byName.keySet().forEach(known -> names.put(stem(known), known));
        var whole =
                name.endsWith(SUFFIX)
                        ? Optional.<String>empty()
                        : OptionSchema.nearest(name, byName.keySet().stream().sorted().toList());
        return whole.or(() ->
                OptionSchema.nearest(stem(name), List.copyOf(names.keySet())).map(names::get));
    }

    private static String stem(String name) {
        return name.endsWith(SUFFIX) ? name.substring(0, name.length() - SUFFIX.length()) : name;
    }

    /// How messages call a kind of plugin: `KvConnectorProvider` is a KV connector to its users.
    static String label(Class<?> kind) {
        var words = kind.getSimpleName().replace("Provider", "").split("(?<=.)(?=\\p{Upper})");
        return Arrays.stream(words)
                .map(word ->
                        switch (word) {
                            case "Kv" -> "KV";
                            case "Ec" -> "encoder-cache";
                            default -> word.toLowerCase(Locale.ROOT);
                        })
                .collect(Collectors.joining(" "));
    }

    private String listed(FoundPlugin<P> plugin) {
        var aliases = plugin.provider().aliases();
        return plugin.name()
                + (aliases.isEmpty() ? "" : " (also " + String.join(", ", aliases) + ")")
                + " in "
                + plugin.where();
    }
}

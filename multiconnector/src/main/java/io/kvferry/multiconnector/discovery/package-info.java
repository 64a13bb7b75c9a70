// SPDX-License-Identifier: Apache-2.0
/// Finds plugins: [java.util.ServiceLoader] over the class path, and over a plugin folder in which
/// every sub-folder of jars has a class loader of its own.
/// [io.kvferry.multiconnector.discovery.PluginCatalog] is the entry.
@NullMarked
package io.kvferry.multiconnector.discovery;

import org.jspecify.annotations.NullMarked;

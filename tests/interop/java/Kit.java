import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.rest.RESTCompatibilityKitCatalogTests;
import org.junit.jupiter.api.AfterEach;
import org.junit.platform.console.ConsoleLauncher;

/** Runs JUnit's console with what it is told on the command line, and with the class below to select. */
public class Kit {
  public static void main(String[] args) {
    // JUnit looks for classes where the thread does, and the launcher of source files keeps its own to itself.
    Thread.currentThread().setContextClassLoader(Kit.class.getClassLoader());
    ConsoleLauncher.main(args);
  }
}

/**
 * The kit's own tests of tables, and those of their base that the kit leaves out because not every server has nested
 * namespaces and names with slashes. The kit asks for locations in the system's folder for temporary files; a server
 * that keeps tables inside its warehouse refuses those, so here it asks for the same below a place it is given.
 */
class TableTests extends RESTCompatibilityKitCatalogTests {
  @Override
  protected String baseTableLocation(TableIdentifier table) {
    return System.getProperty("lakepact.requested-locations") + "/" + table.namespace() + "/" + table.name();
  }

  /** The kit tidies up after its own tests only; those of nested namespaces expect a fresh catalog each. */
  @AfterEach
  void dropNestedNamespaces() {
    Namespace parent = Namespace.of("parent");
    if (catalog().namespaceExists(parent)) {
      catalog().listNamespaces(parent).forEach(catalog()::dropNamespace);
      catalog().dropNamespace(parent);
    }
  }

  @Override
  protected boolean supportsNestedNamespaces() {
    return true;
  }

  @Override
  protected boolean supportsNamesWithSlashes() {
    return true;
  }
}

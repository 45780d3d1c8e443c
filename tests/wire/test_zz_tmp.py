from tests.wire.overlays import *
from tests.wire.world import *
from tests.wire.conftest import *
async def test_abort_remembers(anywhere: Wire):
    await furnish(anywhere, "t")
    tx = await begin(anywhere)
    await tx.commit(append(1)); await tx.table("new")
    a=(await tx.shown())["changes"]
    await tx.do("abort")
    b=(await tx.shown())["changes"]
    print(anywhere.settings.store[:10], len(a), len(b), [x.get("metadata-location","")[-30:] for x in b])
    for name in ("a/b", "größe", "x"*600, "..", "a b"):
        r = await (await begin(anywhere)).put(quote(name, safe=""), {"v":1})
        print(name[:10], r.status, r.body[:100])
async def test_view_receipt(anywhere: Wire):
    await furnish(anywhere)
    tx = await begin(anywhere)
    await tx.view()
    await tx.post(view_path(), {"updates":[set_properties(a="b")]})
    d = await tx.publish()
    print(d)

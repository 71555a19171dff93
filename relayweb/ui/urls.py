app_name = "ui"
urlpatterns: list[object] = []
